-- Where the group stands per partition. `complete`: everything of the partition up to this command is applied.
CREATE TABLE places (
    topic text NOT NULL, partition int8 NOT NULL,
    next_offset int8 NOT NULL, number int8 NOT NULL, seq int8 NOT NULL, idx int8 NOT NULL, time int8 NOT NULL,
    undecoded int8 NOT NULL, repeated int8 NOT NULL, compacted int8 NOT NULL, complete int8 NOT NULL,
    PRIMARY KEY (topic, partition)
) WITH (fillfactor = 10);
CREATE TABLE dead_letters (
    topic text NOT NULL, partition int8 NOT NULL, place int8 NOT NULL, time int8 NOT NULL,
    reason text NOT NULL, message_key bytea, value bytea,
    PRIMARY KEY (topic, partition, place)
);
