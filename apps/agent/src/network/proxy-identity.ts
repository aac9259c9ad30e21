import { errorFields, type Log } from '@cloudless/base';
import { NodeIdentityStore, type NodeIdentity } from '@cloudless/agent-core';
import type { IdentitySource, ProxyIdentity } from '@cloudless/mesh';
import { IdentityDirectory } from '../identity/identity-directory.js';

/** The identity of the node as the proxy reads it from the data directory of the agent. */
export class ProxyIdentityReader implements IdentitySource {
  private identity: NodeIdentity | undefined;
  private readonly listeners = new Set<() => void>();

  constructor(
    private readonly dataDir: string,
    private readonly log: Log,
  ) {}

  /** The identity with what a client of a coordinator needs; undefined before the node has joined. */
  get node(): NodeIdentity | undefined {
    return this.identity;
  }

  current(): ProxyIdentity | undefined {
    if (this.identity === undefined) return undefined;
    const { keyPem, chainPem, trustBundle, trustDomain } = this.identity;
    return { keyPem, chainPem, bundlePem: trustBundle.pem, trustDomain };
  }

  onChange(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Reads the files again. Keeps the known identity when they cannot be read. */
  async reload(): Promise<void> {
    try {
      const files = await IdentityDirectory.open(this.dataDir);
      // The agent owns the files and completes interrupted writes; the proxy only reads.
      const readOnly = {
        read: (name: Parameters<typeof files.read>[0]) => files.read(name),
        write: () => Promise.resolve(),
        remove: () => Promise.resolve(),
      };
      const { identity } = await new NodeIdentityStore(readOnly, 'cloudless-agent reset').load();
      if (identity === undefined) return;
      const isSame =
        identity.chainPem === this.identity?.chainPem &&
        identity.trustBundle.pem === this.identity.trustBundle.pem;
      this.identity = identity;
      if (!isSame) for (const listener of this.listeners) listener();
    } catch (reason) {
      this.log.warn('identity of the node not read', errorFields(reason));
    }
  }
}
