import { createClient } from '@connectrpc/connect';
import { IdentityService, fromConnectError, type AuthorityKeys } from '@cloudless/api';
import {
  CloudlessError,
  WorkQueue,
  errorFields,
  noMeter,
  type Clock,
  type Log,
  type Random,
  type WorkResult,
} from '@cloudless/base';
import {
  CERTIFICATE_AUTHORITY_KEY,
  isRotating,
  noteKeyHolder,
  type ClusterState,
} from '@cloudless/cluster-state';
import type { ClusterIdentities, ServerCertificate } from '@cloudless/controllers';
import {
  connectHttp2Session,
  createGrpcTransportOver,
  type ClientTls,
} from '@cloudless/rpc-node/client';

/** Fetches the keys that a coordinator does not have from another one. */
export type FetchKeys = (
  address: string,
  tls: ClientTls,
  storedGenerations: readonly number[],
) => Promise<readonly AuthorityKeys[]>;

export interface AuthorityKeySyncOptions {
  readonly state: ClusterState;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly identities: Pick<
    ClusterIdentities,
    | 'coordinatorId'
    | 'trustDomain'
    | 'getTrustBundle'
    | 'listGenerations'
    | 'importKeys'
    | 'onChange'
  >;
  readonly server: Pick<ServerCertificate, 'getContext'>;
  /** Default: a call over mutual TLS. */
  readonly fetchKeys?: FetchKeys;
}

/** Longest duration of a call for keys, milliseconds. */
const CALL_TIMEOUT_MS = 10_000;
/** Delays after a failure. A rotation waits for the keys, and an election takes seconds. */
const RETRY = { firstMs: 500, maxMs: 30_000, jitter: 0.5 };
/** Largest response: two generations have four PEM texts of about a kilobyte each. */
const MAX_RESPONSE_BYTES = 256 * 1024;

/**
 * Brings the keys of a new generation of the certificate authority to this coordinator: whenever the
 * record names a generation whose keys are missing here, fetches them from the leader over mutual
 * TLS, stores them, and tells the leader. The rotation continues once every running coordinator has
 * the keys, so that any of them can lead afterwards. The keys are never in the store.
 */
export class AuthorityKeySync {
  private readonly queue: WorkQueue<'keys'>;
  private readonly unsubscribes: readonly (() => void)[];

  constructor(private readonly options: AuthorityKeySyncOptions) {
    const { state, clock, random, log, identities } = options;
    this.queue = new WorkQueue<'keys'>({
      clock,
      random,
      metrics: { meter: noMeter, loop: 'authority-keys' },
      handle: () => this.sync(),
      onError: (_key, reason) =>
        log.warn('keys of the certificate authority not fetched', errorFields(reason)),
      backoff: RETRY,
    });
    const wake = (): void => this.queue.wake('keys');
    this.unsubscribes = [identities.onChange(wake), state.onRoleChange(wake)];
    wake();
  }

  async close(): Promise<void> {
    for (const unsubscribe of this.unsubscribes) unsubscribe();
    await this.queue.stop();
  }

  private async sync(): Promise<WorkResult> {
    const { state, identities, log } = this.options;
    const { stored, missing } = await identities.listGenerations();
    if (!this.mustAct(missing)) return { kind: 'done' };
    if (state.role === 'leader') {
      if (missing.length > 0)
        throw new CloudlessError(
          'precondition',
          `this coordinator leads without the keys of generation ${missing.join(', ')}; hand the leadership to a coordinator that has them with "cloudlessctl admin step-down", or copy the directory of the generation from it`,
        );
      await this.noteOwnKeys();
      return { kind: 'done' };
    }
    const address = state.leader()?.address ?? '';
    if (address === '')
      throw new CloudlessError('unavailable', 'no coordinator leads that has the keys');
    const { fetchKeys = fetchKeysOverTls } = this.options;
    const keys = await fetchKeys(address, this.toClientTls(), stored);
    for (const { generation, ...pems } of keys) {
      await identities.importKeys(generation, {
        rootPem: pems.rootCertificate,
        rootKeyPem: pems.rootKey,
        issuingPem: pems.issuingCertificate,
        issuingKeyPem: pems.issuingKey,
      });
      log.info('keys of the certificate authority stored', { generation });
    }
    // The next call tells the leader that the keys are stored.
    return keys.length > 0 ? { kind: 'retry' } : { kind: 'done' };
  }

  /**
   * Returns true while keys are missing, or the leader does not know that this coordinator has
   * them.
   */
  private mustAct(missing: readonly number[]): boolean {
    const record = this.options.state.view().certificateAuthority()?.value;
    if (record === undefined) return false;
    return missing.length > 0 || noteKeyHolder(record, this.id) !== undefined;
  }

  private get id(): string {
    return this.options.identities.coordinatorId.id;
  }

  private async noteOwnKeys(): Promise<void> {
    const { state } = this.options;
    const stored = state.view().certificateAuthority();
    if (stored === undefined || !isRotating(stored.value)) return;
    const after = noteKeyHolder(stored.value, this.id);
    if (after === undefined) return;
    await state.commitObserved(
      state
        .transaction()
        .require('ca', CERTIFICATE_AUTHORITY_KEY, stored)
        .put('ca', CERTIFICATE_AUTHORITY_KEY, after),
    );
  }

  private toClientTls(): ClientTls {
    const { identities, server } = this.options;
    const { keyPem, chainPem } = server.getContext();
    return {
      keyPem,
      chainPem,
      bundlePem: identities.getTrustBundle().pem,
      serverIds: [],
      serverKinds: ['controller'],
      trustDomain: identities.trustDomain,
    };
  }
}

const fetchKeysOverTls: FetchKeys = async (address, tls, storedGenerations) => {
  const session = await connectHttp2Session(address, tls, AbortSignal.timeout(CALL_TIMEOUT_MS));
  try {
    const transport = createGrpcTransportOver(session, address, MAX_RESPONSE_BYTES);
    const { keys } = await createClient(IdentityService, transport).fetchAuthorityKeys(
      { storedGenerations: [...storedGenerations] },
      { timeoutMs: CALL_TIMEOUT_MS },
    );
    return keys;
  } catch (reason) {
    throw fromConnectError(reason);
  } finally {
    session.destroy();
  }
};
