import {
  CloudlessError,
  errorFields,
  errorKindOf,
  errorReasonOf,
  type Clock,
  type Log,
} from '@cloudless/base';
import {
  CERTIFICATE_AUTHORITY_KEY,
  createAuthorityRecord,
  getServerGeneration,
  type ClusterState,
} from '@cloudless/cluster-state';
import type { CertificateAuthorityRecord } from '@cloudless/api/store';
import { formatSpiffeId, type SpiffeId } from '@cloudless/identity';
import {
  PeerVerifier,
  hashRoot,
  type AuthorityPems,
  type CertificateAuthority,
  type CertificateChain,
} from '@cloudless/identity/x509';

/** The key files of the certificate authority. */
export interface AuthorityKeys {
  /** Returns the generations whose files are complete, ascending. */
  list(): Promise<readonly number[]>;
  /**
   * Loads a generation.
   * @throws kind `precondition` when its files are missing, damaged or accessible by others.
   */
  load(generation: number): Promise<CertificateAuthority>;
  /** Creates a generation durably. Never overwrites one. */
  create(generation: number): Promise<CertificateAuthority>;
  /** Reads the files of a generation, for another coordinator. Secret. */
  read(generation: number): Promise<AuthorityPems>;
  /**
   * Stores a generation that another coordinator has created, durably. Other files of the generation
   * are set aside, never deleted.
   * @throws kind `precondition` when the parts are damaged or do not belong together.
   */
  store(generation: number, pems: AuthorityPems): Promise<CertificateAuthority>;
  /**
   * Removes the files of every generation below `generation`. Repeats a removal that a crash has
   * interrupted.
   * @returns The generations that were removed.
   */
  removeBefore(generation: number): Promise<readonly number[]>;
}

/** Lifetimes of new certificates, milliseconds. */
export interface CertificateLifetimes {
  readonly nodeMs: number;
  readonly userMs: number;
  readonly workloadMs: number;
}

export interface ClusterIdentitiesOptions {
  readonly state: ClusterState;
  readonly clock: Clock;
  readonly log: Log;
  readonly keys: AuthorityKeys;
  readonly trustDomain: string;
  /** Id of this coordinator in its SPIFFE ID. */
  readonly coordinatorName: string;
  /** Key of the HMAC by which tokens are stored. */
  readonly tokenSecret: Uint8Array;
  readonly lifetimes: CertificateLifetimes;
}

/** The trusted roots. */
interface TrustBundle {
  readonly generation: bigint;
  readonly pem: string;
  readonly rootSha256s: readonly string[];
}

/**
 * The certificate authority of the cluster: the record in the store says which generations are
 * trusted and which generation issues, and the key files of this coordinator sign. Changes of the
 * record take effect without a restart.
 */
export class ClusterIdentities {
  readonly trustDomain: string;
  readonly tokenSecret: Uint8Array;
  readonly lifetimes: CertificateLifetimes;
  readonly coordinatorId: SpiffeId;
  private readonly authorities = new Map<number, Promise<CertificateAuthority>>();
  private readonly listeners = new Set<() => void>();
  private readonly unsubscribe: () => void;
  private record: CertificateAuthorityRecord;
  private bundle: TrustBundle;
  private peerVerifier: PeerVerifier;

  private constructor(
    private readonly options: ClusterIdentitiesOptions,
    record: CertificateAuthorityRecord,
  ) {
    const { trustDomain, coordinatorName, state } = options;
    this.trustDomain = trustDomain;
    this.tokenSecret = options.tokenSecret;
    this.lifetimes = options.lifetimes;
    this.coordinatorId = { trustDomain, kind: 'controller', id: coordinatorName };
    this.record = record;
    this.bundle = toTrustBundle(record);
    this.peerVerifier = new PeerVerifier({ trustDomain, bundlePem: this.bundle.pem });
    this.unsubscribe = state.subscribe((changes) => {
      for (const change of changes)
        if (change.kind === 'ca' && change.after !== undefined) this.follow(change.after);
    });
  }

  /**
   * Reads the record of the certificate authority and loads the keys; creates both at the first
   * start of a cluster. A coordinator that follows waits until the leader has written the record, or
   * until it leads.
   * @throws kind `precondition` when the key files are missing, damaged or of another cluster, or
   *   the trust domain is not that of the cluster. Files are never changed then.
   */
  static async open(options: ClusterIdentitiesOptions): Promise<ClusterIdentities> {
    const record = await requireRecord(options);
    if (record.trustDomain !== options.trustDomain) {
      throw new CloudlessError(
        'precondition',
        `the trust domain of this cluster is "${record.trustDomain}", not "${options.trustDomain}"; start the coordinator with --trust-domain ${record.trustDomain}`,
      );
    }
    const identities = new ClusterIdentities(options, record);
    try {
      await identities.getAuthority(getServerGeneration(record));
      await identities.requireIssuingKeys();
      await identities.removeRetiredKeys();
      return identities;
    } catch (reason) {
      identities.close();
      throw reason;
    }
  }

  close(): void {
    this.unsubscribe();
  }

  /** Verifies peers by the current trust bundle. Another object after each change. */
  get verifier(): PeerVerifier {
    return this.peerVerifier;
  }

  /**
   * SPIFFE IDs of the coordinators that run, for clients of earlier versions, which accept no other
   * servers.
   */
  get coordinatorIds(): readonly string[] {
    const { trustDomain, coordinatorId, options } = this;
    const others = [...options.state.view().coordinators()].map(({ value }) => value.id);
    return [...new Set([coordinatorId.id, ...others.sort()])].map((id) =>
      formatSpiffeId({ trustDomain, kind: 'controller', id }),
    );
  }

  get issuingGeneration(): number {
    return this.record.issuingGeneration;
  }

  /** Generation that signs the certificates of coordinators. */
  get serverGeneration(): number {
    return getServerGeneration(this.record);
  }

  /** Returns the trusted roots, oldest first. New tokens name each of them. */
  getTrustBundle(): TrustBundle {
    return this.bundle;
  }

  /** Issues a certificate with the key of {@link issuingGeneration}. */
  async issue(order: {
    readonly id: SpiffeId;
    readonly publicKey: Uint8Array;
    readonly lifetimeMs: number;
    readonly usage: 'client' | 'server' | 'both';
  }): Promise<CertificateChain & { readonly generation: number }> {
    const generation = this.issuingGeneration;
    const authority = await this.getAuthority(generation);
    const chain = await authority.issue({ ...order, nowMs: this.options.clock.wallTime() });
    return { ...chain, generation };
  }

  /** Issues a certificate of this coordinator with the key of {@link serverGeneration}. */
  async issueServerCertificate(order: {
    readonly publicKey: Uint8Array;
    readonly lifetimeMs: number;
    readonly dnsNames: readonly string[];
    readonly ipAddresses: readonly string[];
  }): Promise<CertificateChain & { readonly generation: number }> {
    const generation = this.serverGeneration;
    const authority = await this.getAuthority(generation);
    const chain = await authority.issue({
      ...order,
      id: this.coordinatorId,
      usage: 'both',
      nowMs: this.options.clock.wallTime(),
    });
    return { ...chain, generation };
  }

  /** Returns the root of a generation, whose keys are created unless they exist. */
  async createGeneration(generation: number): Promise<{ readonly rootPem: string }> {
    const { keys } = this.options;
    const exists = (await keys.list()).includes(generation);
    // Files without a record are left by a rotation whose record was not written.
    const authority = await (exists ? keys.load(generation) : keys.create(generation));
    return { rootPem: authority.rootPem };
  }

  /**
   * Returns the trusted generations whose keys this coordinator has, and those it has not: files of
   * another root with the same number, which a rotation without a record has left, do not count.
   */
  async listGenerations(): Promise<{
    readonly stored: readonly number[];
    readonly missing: readonly number[];
  }> {
    const trusted = this.record.roots.map(({ generation }) => generation);
    const files = new Set(await this.options.keys.list());
    const stored: number[] = [];
    for (const generation of trusted)
      if (files.has(generation) && (await this.hasTrustedFiles(generation)))
        stored.push(generation);
    return { stored, missing: trusted.filter((generation) => !stored.includes(generation)) };
  }

  private async hasTrustedFiles(generation: number): Promise<boolean> {
    return this.load(generation).then(
      () => true,
      () => false,
    );
  }

  /** Returns the keys of a trusted generation for another coordinator. Secret. */
  async exportKeys(generation: number): Promise<AuthorityPems> {
    const pems = await this.options.keys.read(generation);
    this.requireTrusted(generation, hashRoot(pems.rootPem));
    return pems;
  }

  /**
   * Stores the keys of a generation that another coordinator has created.
   * @throws kind `precondition` when they are not the keys of the root that the record names.
   */
  async importKeys(generation: number, pems: AuthorityPems): Promise<void> {
    if (!this.isTrusted(generation, hashRoot(pems.rootPem)))
      throw new CloudlessError(
        'precondition',
        `the keys of generation ${generation} are not those of the root that the cluster trusts`,
      );
    const { keys, log } = this.options;
    if ((await keys.list()).includes(generation))
      log.warn('key files that do not belong to the trusted root are set aside', { generation });
    await keys.store(generation, pems);
  }

  /** Wall-clock milliseconds from which on the issuing generation cannot issue any more. */
  async getAuthorityExpiry(): Promise<number> {
    return (await this.getAuthority(this.issuingGeneration)).notAfterMs;
  }

  /** Calls the listener when the trust bundle, or a generation that signs, has changed. */
  onChange(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  private follow(record: CertificateAuthorityRecord): void {
    this.record = record;
    this.bundle = toTrustBundle(record);
    const { trustDomain } = this;
    this.peerVerifier = new PeerVerifier({ trustDomain, bundlePem: this.bundle.pem });
    for (const generation of [this.issuingGeneration, this.serverGeneration]) {
      this.getAuthority(generation).catch((reason: unknown) =>
        this.options.log.error('keys of the certificate authority not loaded', {
          generation,
          ...errorFields(reason),
        }),
      );
    }
    for (const listener of this.listeners) listener();
    void this.removeRetiredKeys();
  }

  /**
   * Removes the keys of generations that no longer are in the trust bundle: a rotation after a theft
   * of keys must leave none of them. Never fails: the next change, or the next start, tries again.
   */
  private async removeRetiredKeys(): Promise<void> {
    const { keys, log, state } = this.options;
    // A rolled back state may be replaced by the newer state that belongs to the files.
    if (state.storeRolledBack !== undefined) return;
    const oldest = this.serverGeneration;
    for (const generation of this.authorities.keys())
      if (generation < oldest) this.authorities.delete(generation);
    try {
      const generations = await keys.removeBefore(oldest);
      if (generations.length > 0)
        log.info('keys of retired generations of the certificate authority removed', {
          generations,
        });
    } catch (reason) {
      log.warn('keys of a retired generation of the certificate authority not removed', {
        ...errorFields(reason),
      });
    }
  }

  private getAuthority(generation: number): Promise<CertificateAuthority> {
    const known = this.authorities.get(generation);
    if (known !== undefined) return known;
    const loading = this.load(generation);
    this.authorities.set(generation, loading);
    // The next call reads the files again, which an operator may have restored.
    loading.catch(() => this.authorities.delete(generation));
    return loading;
  }

  /**
   * A coordinator that follows may lack the keys of a rotation that began while it was off: its own
   * certificate is trusted until the rotation ends, so it can fetch them from the leader.
   */
  private async requireIssuingKeys(): Promise<void> {
    const { state, log } = this.options;
    const { missing } = await this.listGenerations();
    const generation = this.issuingGeneration;
    if (state.role === 'leader' || !missing.includes(generation)) {
      await this.getAuthority(generation);
      return;
    }
    log.warn('keys of the certificate authority are missing until they are fetched', {
      generation,
    });
  }

  private isTrusted(generation: number, rootSha256: string): boolean {
    const root = this.record.roots.find((candidate) => candidate.generation === generation);
    return root !== undefined && hashRoot(root.pem) === rootSha256;
  }

  private async load(generation: number): Promise<CertificateAuthority> {
    const authority = await this.options.keys.load(generation);
    this.requireTrusted(generation, authority.rootSha256);
    return authority;
  }

  /** @throws kind `precondition` when the root of key files is not that of the record. */
  private requireTrusted(generation: number, rootSha256: string): void {
    if (this.isTrusted(generation, rootSha256)) return;
    throw new CloudlessError('precondition', describeUntrustedKeys(generation));
  }
}

/** Returns the first record of the cluster, which only a leader can write. */
async function requireRecord(
  options: ClusterIdentitiesOptions,
): Promise<CertificateAuthorityRecord> {
  const { state } = options;
  for (;;) {
    const existing = state.view().certificateAuthority()?.value;
    if (existing !== undefined) return existing;
    if (state.role === 'leader') {
      try {
        return await createRecord(options);
      } catch (reason) {
        if (errorReasonOf(reason) !== 'LEADERSHIP_LOST') throw reason;
      }
    }
    await waitForChange(state);
  }
}

function waitForChange(state: ClusterState): Promise<void> {
  return new Promise((resolve, reject) => {
    const unsubscribes = [
      state.subscribe((changes) => {
        if (changes.some(({ kind }) => kind === 'ca')) finish(resolve);
      }),
      state.onRoleChange(() => finish(resolve)),
      state.onEnd((reason) => finish(() => reject(reason))),
    ];
    const finish = (settle: () => void): void => {
      for (const unsubscribe of unsubscribes) unsubscribe();
      settle();
    };
  });
}

/** Returns the error of key files whose root is not that of the record. */
export function describeUntrustedKeys(generation: number): string {
  return `the key files of generation ${generation} of the certificate authority belong to another cluster, or to a rotation that was not recorded; restore the identity directory that belongs to this state, or copy the directory of the generation from another coordinator`;
}

function toTrustBundle({ roots, trustBundleGeneration }: CertificateAuthorityRecord): TrustBundle {
  return {
    generation: trustBundleGeneration,
    pem: roots.map(({ pem }) => pem).join(''),
    rootSha256s: roots.map(({ pem }) => hashRoot(pem)),
  };
}

/**
 * Writes the first record. Key files without a record are left by a first start that was
 * interrupted, or belong to a cluster whose state is gone; the newest generation goes on.
 */
async function createRecord({
  state,
  keys,
  trustDomain,
}: ClusterIdentitiesOptions): Promise<CertificateAuthorityRecord> {
  const newest = (await keys.list()).at(-1);
  const authority = await (newest === undefined ? keys.create(1) : keys.load(newest));
  const { generation, rootPem: pem } = authority;
  const record = createAuthorityRecord(trustDomain, { generation, pem });
  try {
    await state.commitObserved(
      state
        .transaction()
        .require('ca', CERTIFICATE_AUTHORITY_KEY, 'absent')
        .put('ca', CERTIFICATE_AUTHORITY_KEY, record),
    );
    return record;
  } catch (reason) {
    const existing = state.view().certificateAuthority()?.value;
    if (errorKindOf(reason) !== 'conflict' || existing === undefined) throw reason;
    return existing;
  }
}
