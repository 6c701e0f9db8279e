//! Delegation to the volume inside a decorator.

/// Implements the methods of [`Volume`](crate::Volume) and [`RemoteVolume`](crate::RemoteVolume) that a decorator
/// delegates to the volume in its field `inner`: `pass_on!(list, space to inner);` within its `impl`. `tagged`: all
/// methods for objects that are changed in place.
#[macro_export]
macro_rules! pass_on {
    ($($method:ident),+ to $inner:tt) => {
        $($crate::pass_on!(@$method $inner);)+
    };
    (@create_for $inner:tt) => {
        fn create_for(
            &self,
            name: &$crate::BlobName,
            owner: $crate::Owner,
        ) -> ::core::result::Result<::std::boxed::Box<dyn $crate::BlobWriter>, $crate::VolumeError> {
            $crate::Volume::create_for(&self.$inner, name, owner)
        }
    };
    (@open $inner:tt) => {
        fn open(
            &self,
            name: &$crate::BlobName,
        ) -> ::core::result::Result<::std::sync::Arc<dyn $crate::Blob>, $crate::VolumeError> {
            $crate::Volume::open(&self.$inner, name)
        }
    };
    (@list $inner:tt) => {
        fn list(
            &self,
            prefix: &$crate::BlobName,
            after: ::core::option::Option<&$crate::BlobName>,
            limit: ::core::num::NonZeroUsize,
        ) -> ::core::result::Result<$crate::ListPage, $crate::VolumeError> {
            $crate::Volume::list(&self.$inner, prefix, after, limit)
        }
    };
    (@remove $inner:tt) => {
        fn remove(&self, name: &$crate::BlobName) -> ::core::result::Result<(), $crate::VolumeError> {
            $crate::Volume::remove(&self.$inner, name)
        }
    };
    (@discard_unfinished $inner:tt) => {
        fn discard_unfinished(&self) -> ::core::result::Result<u64, $crate::VolumeError> {
            $crate::Volume::discard_unfinished(&self.$inner)
        }
    };
    (@space $inner:tt) => {
        fn space(
            &self,
        ) -> ::core::result::Result<::core::option::Option<$crate::Space>, $crate::VolumeError> {
            $crate::Volume::space(&self.$inner)
        }
    };
    (@remove_empty_folders $inner:tt) => {
        fn remove_empty_folders(
            &self,
            below: &$crate::BlobName,
            is_left: &dyn ::core::ops::Fn(&$crate::BlobName) -> bool,
        ) -> ::core::result::Result<(), $crate::VolumeError> {
            $crate::Volume::remove_empty_folders(&self.$inner, below, is_left)
        }
    };
    (@here $inner:tt) => {
        fn here(&self) -> ::core::option::Option<::std::sync::Arc<dyn $crate::Volume>> {
            $crate::Volume::here(&self.$inner)
        }
    };
    (@evict $inner:tt) => {
        fn evict(
            &self,
            name: &$crate::BlobName,
            ends: $crate::Ends,
        ) -> ::core::result::Result<bool, $crate::VolumeError> {
            $crate::Volume::evict(&self.$inner, name, ends)
        }
    };
    (@freeze $inner:tt) => {
        fn freeze(&self, name: &$crate::BlobName) -> ::core::result::Result<bool, $crate::VolumeError> {
            $crate::Volume::freeze(&self.$inner, name)
        }
    };
    (@handles_outlive_removal $inner:tt) => {
        fn handles_outlive_removal(&self) -> bool {
            $crate::Volume::handles_outlive_removal(&self.$inner)
        }
    };
    (@stat $inner:tt) => {
        fn stat(
            &self,
            name: &$crate::BlobName,
        ) -> ::core::result::Result<$crate::RemoteStat, $crate::VolumeError> {
            self.$inner.stat(name)
        }
    };
    (@list_objects $inner:tt) => {
        fn list_objects(
            &self,
            after: ::core::option::Option<&str>,
        ) -> ::core::result::Result<$crate::RemotePage, $crate::VolumeError> {
            self.$inner.list_objects(after)
        }
    };
    (@remove_all $inner:tt) => {
        fn remove_all(&self, names: &[$crate::BlobName]) -> ::core::result::Result<(), $crate::VolumeError> {
            self.$inner.remove_all(names)
        }
    };
    (@tagged $inner:tt) => {
        fn read_tagged(
            &self,
            name: &$crate::BlobName,
        ) -> ::core::result::Result<::core::option::Option<$crate::Tagged>, $crate::VolumeError> {
            self.$inner.read_tagged(name)
        }

        fn tag(
            &self,
            name: &$crate::BlobName,
        ) -> ::core::result::Result<::core::option::Option<::std::string::String>, $crate::VolumeError> {
            self.$inner.tag(name)
        }

        fn replace_tagged(
            &self,
            name: &$crate::BlobName,
            bytes: &[u8],
            tag: ::core::option::Option<&str>,
        ) -> ::core::result::Result<::core::option::Option<::std::string::String>, $crate::VolumeError> {
            self.$inner.replace_tagged(name, bytes, tag)
        }
    };
    (@sign_with $inner:tt) => {
        fn sign_with(&self, number: u64) {
            self.$inner.sign_with(number);
        }
    };
}
