import { SerialQueue } from '../store/serial-queue.js';
import type { CertificateRequest, NodeIdentity, TrustedRoots } from './node-identity.js';
import type { NodeIdentityStore, StoredIdentity } from './node-identity-store.js';

/**
 * The identity of this node in memory. Every change is stored before it takes effect; changes are
 * applied one after the other.
 */
export class NodeIdentityKeeper {
  private identity: NodeIdentity | undefined;
  private request: CertificateRequest | undefined;
  private readonly writes = new SerialQueue();
  private readonly listeners = new Set<() => void>();

  constructor(
    private readonly store: NodeIdentityStore,
    stored: StoredIdentity,
    private readonly createRequest: () => Promise<CertificateRequest>,
  ) {
    this.identity = stored.identity;
    this.request = stored.request;
  }

  /** The current identity; undefined until this machine has joined a cluster. */
  get current(): NodeIdentity | undefined {
    return this.identity;
  }

  /**
   * Returns the request whose certificate has not arrived, or else a new request with a new key. The
   * request is on disk when the promise resolves.
   */
  requireRequest(): Promise<CertificateRequest> {
    return this.writes.run(async () => {
      if (this.request !== undefined) return this.request;
      const request = await this.createRequest();
      await this.store.saveRequest(request);
      return (this.request = request);
    });
  }

  /** Replaces the identity with the certificate that answers `request`. */
  replace(identity: NodeIdentity, request: CertificateRequest): Promise<void> {
    return this.writes.run(async () => {
      await this.store.saveIdentity(identity, request);
      this.request = undefined;
      this.apply(identity);
    });
  }

  /**
   * Stores a new trust bundle. Has no effect without an identity, or when the bundle is the same.
   */
  replaceTrustBundle(bundle: TrustedRoots): Promise<void> {
    return this.writes.run(async () => {
      const { identity } = this;
      if (identity === undefined) return;
      const { generation, pem } = identity.trustBundle;
      if (bundle.generation === generation && bundle.pem === pem) return;
      this.apply(await this.store.saveTrustBundle(identity, bundle));
    });
  }

  /**
   * Calls `listener` after each change of the identity.
   * @returns A function that ends the subscription.
   */
  onChange(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  private apply(identity: NodeIdentity): void {
    this.identity = identity;
    for (const listener of [...this.listeners]) listener();
  }
}
