-- Where the group stands per partition. `complete`: everything of the partition up to this command is applied.
CREATE TABLE places (
    topic TEXT NOT NULL, partition INTEGER NOT NULL,
    next_offset INTEGER NOT NULL, number INTEGER NOT NULL, seq INTEGER NOT NULL, idx INTEGER NOT NULL, time INTEGER NOT NULL,
    undecoded INTEGER NOT NULL, repeated INTEGER NOT NULL, compacted INTEGER NOT NULL, complete INTEGER NOT NULL,
    PRIMARY KEY (topic, partition)
) WITHOUT ROWID;
CREATE TABLE dead_letters (
    topic TEXT NOT NULL, partition INTEGER NOT NULL, place INTEGER NOT NULL, time INTEGER NOT NULL,
    reason TEXT NOT NULL, message_key BLOB, value BLOB,
    PRIMARY KEY (topic, partition, place)
) WITHOUT ROWID;
