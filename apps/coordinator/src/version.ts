/** Version of this program; the same for all programs of a release. */
export const VERSION = '0.1.0';
