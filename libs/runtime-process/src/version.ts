/** Of this library; a supervisor tells it, as it may be older than its client. */
export const VERSION = '0.1.0';
