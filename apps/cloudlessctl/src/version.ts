/** Version of cloudlessctl, as in its package.json. */
export const VERSION = '0.1.0';
