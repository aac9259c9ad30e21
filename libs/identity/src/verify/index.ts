/**
 * Verification of peers without the packages that create certificates: for the threads and commands
 * that should need little memory.
 */
export { PeerVerifier, hashRoot } from '../x509/peer-verifier.js';
export type { AllowedPeers, PeerIdentity } from '../x509/peer-verifier.js';
