import type { SpiffeId, SpiffeKind } from '@cloudless/identity';
import type { AuthorityPems, CertificateChain, PeerIdentity } from '@cloudless/identity/x509';

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

/** The roots that members of the cluster trust. */
export interface TrustedRoots {
  /** Number of the trust bundle. Grows with each change. */
  readonly generation: bigint;
  readonly pem: string;
  /** SHA-256 of each root in DER, 64 lower-case hex digits. */
  readonly rootSha256s: readonly string[];
}

/** A certificate with the generation of the certificate authority that has issued it. */
export type IssuedCertificate = CertificateChain & { readonly generation: number };

/** The identities of a cluster: its certificate authority and the secret of its tokens. */
export interface IdentityPort {
  readonly trustDomain: string;
  /** The current verifier. Another object after each change of the trust bundle. */
  readonly verifier: CertificateVerifier;
  /** SPIFFE IDs of the coordinators. */
  readonly coordinatorIds: readonly string[];
  /** Generation of the certificate authority that issues certificates. */
  readonly issuingGeneration: number;
  /** Returns the trusted roots, oldest first. New tokens name each of them. */
  getTrustBundle(): TrustedRoots;
  /** Key of the HMAC of all tokens. */
  readonly tokenSecret: Uint8Array;
  issue(order: CertificateOrder): Promise<IssuedCertificate>;
  /**
   * Creates the keys of a new generation, durably, before any record names the generation. A
   * repeated call returns the same root.
   */
  createGeneration(generation: number): Promise<{ readonly rootPem: string }>;
  /** Id of this coordinator. */
  readonly coordinatorId: SpiffeId;
  /** Returns the trusted generations whose keys this coordinator has, and those it has not. */
  listGenerations(): Promise<{
    readonly stored: readonly number[];
    readonly missing: readonly number[];
  }>;
  /** Returns the keys of a trusted generation for another coordinator. Secret. */
  exportKeys(generation: number): Promise<AuthorityPems>;
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
