-- Damage of which nothing is lost, and how far the containers are known.

-- When every chunk of it was found to have another sound copy; null: something may be lost by it.
ALTER TABLE damage ADD COLUMN healed_ms INTEGER;

-- Every container file with a lower number has a row in `containers`: a start need not look for it.
CREATE TABLE settled (
    only_row INTEGER NOT NULL PRIMARY KEY CHECK (only_row = 1),
    below    INTEGER NOT NULL CHECK (below BETWEEN 0 AND 1099511627776)
) STRICT;
INSERT INTO settled (only_row, below) VALUES (1, 0);
