export { StoreChild } from './store-child.js';
export { removeTemporaryDirectories, temporaryDirectory } from './temporary-directory.js';
