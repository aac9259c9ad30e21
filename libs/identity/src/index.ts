export { isLoopbackAddress, isLoopbackHost, requireLoopback } from './loopback.js';
export { checkHostHeader, checkOrigin } from './request-check.js';
export type { RequestCheck } from './request-check.js';
export { getPrincipal } from './principal.js';
export type { AnonymousPrincipal, Principal } from './principal.js';
