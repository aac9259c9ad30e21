export { StoreChild } from './store-child.js';
export { removeTemporaryDirectories, createTemporaryDirectory } from './temporary-directory.js';
