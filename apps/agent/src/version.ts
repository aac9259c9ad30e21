/** Version of this program; the same in every part of a release. */
export const VERSION = '0.1.0';
