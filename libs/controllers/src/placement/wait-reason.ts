/** The reason of a replica that the placer has not tried to place yet. */
export const WAITS_FOR_NODE = 'waits for a node';
