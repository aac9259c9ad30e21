/** Version of this release; the same for all programs. */
export const VERSION = '0.1.0';
