export { ANONYMOUS_LOOPBACK, getPrincipal, hasRole } from './principal.js';
export type { AnonymousPrincipal, Grant, Principal, RoleName } from './principal.js';
export {
  SPIFFE_KINDS,
  TRUST_DOMAIN_RULE,
  formatSpiffeId,
  isTrustDomain,
  parseSpiffeId,
} from './spiffe/spiffe-id.js';
export type { SpiffeId, SpiffeKind } from './spiffe/spiffe-id.js';
export {
  createAccessToken,
  hashAccessToken,
  isAccessTokenId,
  isUsedUp,
  matchesAccessToken,
  mayContainAccessToken,
  parseAccessToken,
} from './tokens/access-token.js';
export type { AccessTokenParts } from './tokens/access-token.js';
export { createToken, formatToken, hashToken, matchesToken, parseToken } from './tokens/token.js';
export type { Token, TokenKind } from './tokens/token.js';
export { isLoopbackAddress, isLoopbackHost, requireLoopback } from './loopback.js';
export { checkHostHeader, checkOrigin } from './request-check.js';
export type { RequestCheck } from './request-check.js';
