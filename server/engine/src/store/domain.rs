//! A namespace's keys into the index.

use holdfast_types::ids::{ContainerClass, NamespaceId};

use crate::index::{Index, NamespaceKey};

/// What a look-up is confined to: (A6) keys are hashes of their own for every namespace. Data chunks and
/// recipe nodes are domains of their own, too: a disk that contains a copy of a recipe must not be answered
/// with the recipe.
#[derive(Debug, Clone)]
pub(crate) struct Domain {
    pub(crate) namespace: NamespaceId,
    data: NamespaceKey,
    recipe: NamespaceKey,
}

impl Domain {
    pub(super) fn of(index: &Index, namespace: NamespaceId) -> Self {
        Self {
            namespace,
            data: index.key_for(namespace, ContainerClass::Data),
            recipe: index.key_for(namespace, ContainerClass::Recipe),
        }
    }

    pub(crate) const fn key(&self, class: ContainerClass) -> &NamespaceKey {
        match class {
            ContainerClass::Data => &self.data,
            ContainerClass::Recipe => &self.recipe,
        }
    }
}
