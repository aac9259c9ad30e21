import type { SpiffeId, SpiffeKind } from '@cloudless/identity';
import type { CertificateChain, PeerIdentity } from '@cloudless/identity/x509';

/** Verifies certificates against the trust bundle; `PeerVerifier` of `@cloudless/identity/x509`. */
export interface CertificateVerifier {
  verify(
    chainDer: readonly Uint8Array[],
    nowMs: number,
    allowed: {
      readonly kinds: readonly SpiffeKind[];
      readonly usage: 'client' | 'server';
      readonly expiredGraceMs: number;
    },
  ): PeerIdentity;
}

/** A certificate to issue. */
export interface CertificateOrder {
  readonly id: SpiffeId;
  /** SubjectPublicKeyInfo in DER. */
  readonly publicKey: Uint8Array;
  readonly lifetimeMs: number;
  readonly usage: 'client' | 'server' | 'both';
}

/** The identities of a cluster: its certificate authority and the secret of its tokens. */
export interface IdentityPort {
  readonly trustDomain: string;
  /** The current verifier. Another object after each change of the trust bundle. */
  readonly verifier: CertificateVerifier;
  /** SPIFFE IDs of the coordinators. */
  readonly coordinatorIds: readonly string[];
  /** Generation of the certificate authority that issues certificates. */
  readonly issuingGeneration: number;
  getTrustBundle(): { readonly generation: bigint; readonly pem: string };
  /** Returns the SHA-256 of the root that new tokens name, 64 lower-case hex digits. */
  getRootSha256(): string;
  /** Key of the HMAC of all tokens. */
  readonly tokenSecret: Uint8Array;
  issue(order: CertificateOrder): Promise<CertificateChain & { readonly generation: number }>;
  /** Lifetimes of new certificates, milliseconds. */
  readonly lifetimes: {
    readonly nodeMs: number;
    readonly userMs: number;
    readonly workloadMs: number;
  };
  /**
   * Calls the listener after each change of the trust bundle or of the issuing generation.
   * @returns A function that ends the subscription.
   */
  onChange(listener: () => void): () => void;
}
