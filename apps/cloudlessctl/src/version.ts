/** The version of the command line, as in its package.json. */
export const VERSION = '0.1.0';
