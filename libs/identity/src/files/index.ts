export {
  createAuthority,
  listGenerations,
  loadAuthority,
  readAuthorityPems,
  removeAuthoritiesBefore,
  storeAuthority,
} from './authority-files.js';
export type { AuthorityOptions } from './authority-files.js';
export {
  makePrivateDirectory,
  readSecretFile,
  replaceSecretFile,
  writeSecretFile,
} from './secret-file.js';
export { loadTokenSecret, restoreTokenSecret } from './token-secret.js';
export type { TokenSecret } from './token-secret.js';
