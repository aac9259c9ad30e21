/**
 * Version of this library. The supervisor reports it, because a running supervisor may be older
 * than its client.
 */
export const VERSION = '0.1.0';
