export { syncDirectory } from './sync-directory.js';
