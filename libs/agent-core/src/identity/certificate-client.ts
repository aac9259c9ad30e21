import { create } from '@bufbuild/protobuf';
import {
  backoffDelayMs,
  CloudlessError,
  definedFields,
  errorFields,
  errorReasonOf,
  noMeter,
  sleep,
  Wakeup,
  type Clock,
  type ErrorReason,
  type Log,
  type Meter,
  type Random,
} from '@cloudless/base';
import {
  EnrollNodeRequestSchema,
  RenewNodeCertificateRequestSchema,
  type TrustBundle,
} from '@cloudless/api';
import type {
  CoordinatorConnection,
  CoordinatorTransport,
  IdentityCalls,
} from '../session/coordinator-transport.js';
import type { IdentityKeeper } from '../store/identity-keeper.js';
import { SerialQueue } from '../store/serial-queue.js';
import {
  getValidity,
  renewalDelayMs,
  renewalTimeMs,
  toNodeIdentity,
  type NodeIdentity,
} from './node-identity.js';
import type { NodeIdentityKeeper } from './node-identity-keeper.js';
import { registerCertificateMetrics, type CertificateCounters } from './certificate-metrics.js';

/** How this machine gets an identity. Absent: the cluster has no identities. */
export interface NodeIdentityOptions {
  readonly keeper: NodeIdentityKeeper;
  /**
   * Reads the join token. Called whenever this node needs to join, so that an operator can provide
   * another token while the agent runs.
   * @returns Undefined when the agent was given no token.
   */
  readonly readJoinToken: () => Promise<string | undefined>;
  /**
   * Opens a connection without a certificate to a coordinator that the token names.
   * @throws before anything is sent when the server is not a coordinator of the cluster of the
   *   token.
   */
  readonly connectToJoin: (
    address: string,
    token: string,
    signal: AbortSignal,
  ) => Promise<Pick<CoordinatorConnection, 'enroll' | 'close'>>;
  /** Called and awaited when this machine has joined, before its first session. */
  readonly onJoined?: () => Promise<void>;
  /** Called when this agent cannot work: it has no identity, and its join token is refused. */
  readonly onRefused?: (reason: CloudlessError) => void;
}

export interface CertificateClientOptions extends NodeIdentityOptions {
  readonly transport: CoordinatorTransport;
  /** Node id and instance id. */
  readonly identity: IdentityKeeper;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly meter?: Meter;
  /**
   * Called and awaited, for at most {@link PREPARATION_MS}, before a renewal that a coordinator has
   * asked for. A rotation of the certificate authority goes on when all nodes have renewed, so the
   * certificates of replicas are renewed before that of the node.
   */
  readonly prepareRenewal?: () => Promise<void>;
}

/** How to go on after a failure. */
export interface FailureAdvice {
  /** Longest delay before the next attempt, when fast retries do not succeed. */
  readonly maxDelayMs?: number;
  /** What an operator has to do. */
  readonly remedy?: string;
  /** True: the next attempt removes the cause. */
  readonly isHandled?: boolean;
}

/** Longest wait before the times are compared again, because the clock of the machine may jump. */
const MAX_WAIT_MS = 60_000;
/** Shortest time between two renewals that no coordinator has asked for. */
const MIN_INTERVAL_MS = 1_000;
/** Longest wait for the certificates of replicas, milliseconds. */
const PREPARATION_MS = 30_000;
/** Delays after failed renewals, while the certificate is still valid. */
const RENEWAL_BACKOFF = { firstMs: 500, maxMs: 300_000, jitter: 0.5 };
/** Longest delay after a refusal that only an operator can change. */
const REFUSED_DELAY_MS = 30_000;
/** Longest delay while the lease of an earlier agent with the name of this node runs. */
const ALIVE_DELAY_MS = 5_000;
/** Share of the remaining validity that limits the delay after a failed renewal. */
const BACKOFF_SHARE = 0.1;

/**
 * Joins this machine to its cluster and keeps its certificate valid: renews it from half of its life
 * on, at once when a coordinator asks, and before the session when it expired meanwhile. The key of
 * a request is stored before the request is sent, so that the request can be repeated after a lost
 * reply.
 */
export class CertificateClient {
  /** The connection of the session, over which renewals go. */
  private connection: CoordinatorConnection | undefined;
  private readonly wakeup = new Wakeup();
  private readonly renewals = new SerialQueue();
  private readonly counters: CertificateCounters;
  /** Number of renewals that coordinators have asked for, and the newest that has succeeded. */
  private requestCount = 0;
  private answeredCount = 0;
  /** True when a coordinator said that the certificate has expired, whatever the clock here says. */
  private isExpired = false;
  /** True when the coordinators refuse the identity of this node: only a new join can help. */
  private isIdentityRefused = false;
  /** True while the newest attempt is a join. */
  private isJoining = false;
  /** Join token that a coordinator refused; the agent does not send the same token again. */
  private refusedToken: string | undefined;
  private jitter: number;
  private renewedAtMs = -Infinity;
  /**
   * Monotonic time of the next renewal of a certificate that this process got: right also when the
   * clock of this machine is wrong.
   */
  private renewalDueMs = Infinity;

  constructor(private readonly options: CertificateClientOptions) {
    this.jitter = options.random.next();
    this.counters = registerCertificateMetrics(
      options.meter ?? noMeter,
      () => options.keeper.current,
    );
  }

  /** Calls over the connection of the session; undefined without a session. */
  get calls(): IdentityCalls | undefined {
    return this.connection;
  }

  /** Cluster that this machine has joined; undefined before. */
  get clusterId(): string | undefined {
    return this.options.keeper.current?.clusterId;
  }

  /**
   * Makes this node ready for a session with a coordinator: joins when there is no identity, and
   * renews an expired certificate.
   * @param requireOwnCluster - Throws when this node belongs to another cluster.
   */
  async prepare(
    address: string,
    requireOwnCluster: (clusterId: string) => void,
    signal: AbortSignal,
  ): Promise<void> {
    const { keeper, clock } = this.options;
    const identity = keeper.current;
    this.isJoining = identity === undefined;
    if (identity === undefined || this.isIdentityRefused) {
      const token = await this.options.readJoinToken();
      if (token !== undefined && token !== this.refusedToken) {
        // When the join fails, the attempt after this one uses the identity again.
        this.isJoining = true;
        this.isIdentityRefused = false;
        return this.join(address, token, requireOwnCluster, signal);
      }
      if (identity === undefined) throw new CloudlessError('precondition', this.describeNoToken());
    }
    if (this.isExpired || getValidity(identity, clock.wallTime()) === 'expired') {
      const connection = await this.options.transport.connect(address, signal);
      await withConnection(connection, signal, () => this.renew(connection));
      this.options.log.info('expired certificate renewed');
    }
  }

  /**
   * Begins to use the connection of a new session.
   * @returns A function for the end of the session.
   */
  attach(connection: CoordinatorConnection): () => void {
    this.connection = connection;
    this.wakeup.wake();
    return () => {
      if (this.connection === connection) this.connection = undefined;
    };
  }

  /** Handles a RenewCertificate message: stores the trust bundle, then renews at once. */
  async requestRenewal(bundle: TrustBundle | undefined): Promise<void> {
    if (bundle !== undefined && bundle.pem !== '')
      await this.options.keeper.replaceTrustBundle(bundle);
    this.requestCount += 1;
    this.wakeup.wake();
  }

  /** Learns from the failure of an attempt to get a session, or of a session. */
  noteFailure(reason: unknown): FailureAdvice {
    const errorReason = errorReasonOf(reason);
    const { nodeId } = this.options.identity.current;
    const isRefusal = REFUSALS.includes(errorReason);
    // After the first refusal the agent tries at once to join, if there is a join token.
    let isFirst = false;
    if (!this.isJoining) {
      if (errorReason === 'CERTIFICATE_EXPIRED' && !this.isExpired) {
        this.isExpired = true; // the next attempt begins with a renewal
        return { isHandled: true };
      }
      isFirst = isRefusal && !this.isIdentityRefused;
      if (isRefusal) this.isIdentityRefused = true;
    }
    const isFinal = isRefusal || (this.isJoining && JOIN_REFUSALS.includes(errorReason));
    if (!isFinal) return {};
    const remedy = describeRemedy(errorReason, nodeId);
    const delayMs = errorReason === 'NODE_EXISTS' ? ALIVE_DELAY_MS : REFUSED_DELAY_MS;
    return definedFields({ remedy, maxDelayMs: isFirst ? undefined : delayMs });
  }

  /** Renews the certificate whenever its time has come, until `signal` is aborted. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, random, log } = this.options;
    for (let failures = 0; !signal.aborted;) {
      const waitMs = this.renewalWaitMs();
      const { connection } = this;
      if (waitMs > 0 || connection === undefined) {
        await this.wait(waitMs > 0 ? waitMs : MAX_WAIT_MS, signal);
        continue;
      }
      try {
        if (this.requestCount > this.answeredCount) await this.prepareRenewal(signal);
        await this.renew(connection);
        failures = 0;
      } catch (reason) {
        if (signal.aborted) return;
        failures += 1;
        log.warn('certificate not renewed', { failures, ...errorFields(reason) });
        const remainingMs = (this.options.keeper.current?.notAfterMs ?? 0) - clock.wallTime();
        const maxMs = Math.min(
          RENEWAL_BACKOFF.maxMs,
          Math.max(RENEWAL_BACKOFF.firstMs, remainingMs * BACKOFF_SHARE),
        );
        const delayMs = backoffDelayMs({ ...RENEWAL_BACKOFF, maxMs }, failures, random);
        await sleep(clock, delayMs, signal).catch(() => undefined);
      }
    }
  }

  private async prepareRenewal(signal: AbortSignal): Promise<void> {
    const timeout = new AbortController();
    const stop = (): void => timeout.abort();
    signal.addEventListener('abort', stop, { once: true });
    await Promise.race([
      this.options.prepareRenewal?.(),
      sleep(this.options.clock, PREPARATION_MS, timeout.signal).catch(() => undefined),
    ]).finally(() => {
      signal.removeEventListener('abort', stop);
      stop();
    });
  }

  /** Milliseconds until the next renewal; 0 or less: now. */
  private renewalWaitMs(): number {
    const { keeper, clock } = this.options;
    if (keeper.current === undefined) return MAX_WAIT_MS;
    const isRequested = this.requestCount > this.answeredCount;
    const untilDueMs = Math.min(
      renewalTimeMs(keeper.current, this.jitter) - clock.wallTime(),
      this.renewalDueMs - clock.now(),
      isRequested ? 0 : Infinity,
    );
    return Math.max(untilDueMs, this.renewedAtMs + MIN_INTERVAL_MS - clock.now());
  }

  private async wait(delayMs: number, signal: AbortSignal): Promise<void> {
    const timer = this.options.clock.setTimer(Math.min(delayMs, MAX_WAIT_MS), () =>
      this.wakeup.wake(),
    );
    await this.wakeup.wait(signal);
    timer.cancel();
  }

  private async join(
    address: string,
    token: string,
    requireOwnCluster: (clusterId: string) => void,
    signal: AbortSignal,
  ): Promise<void> {
    const { keeper, identity, clock, log } = this.options;
    const { nodeId, instanceId } = identity.current;
    const request = await keeper.requireRequest();
    const connection = await this.options.connectToJoin(address, token, signal);
    const { clusterId, certificate } = await withConnection(connection, signal, () =>
      connection.enroll(
        create(EnrollNodeRequestSchema, { nodeId, instanceId, csr: request.csr, token }),
      ),
    ).catch((reason: unknown) => this.handleJoinFailure(token, reason));
    requireOwnCluster(clusterId);
    const joined = toNodeIdentity(certificate, { nodeId, clusterId, request }, clock.wallTime());
    await keeper.replace(joined, request);
    this.handleCertificate(joined);
    log.info('node joined the cluster', { clusterId, ...describeCertificate(joined) });
    await this.options.onJoined?.();
  }

  private handleJoinFailure(token: string, reason: unknown): never {
    if (errorReasonOf(reason) !== 'INVALID_TOKEN') throw reason;
    this.refusedToken = token;
    const refusal = new CloudlessError(
      'INVALID_TOKEN',
      `the coordinator refuses the join token: the token is unknown, expired, revoked, used up or not for node ` +
        `${this.options.identity.current.nodeId}; create another one with cloudlessctl token create, and start the agent with --join-token-file FILE`,
      { cause: reason },
    );
    if (this.options.keeper.current === undefined) this.options.onRefused?.(refusal);
    throw refusal;
  }

  /** Renews the certificate over a connection. Concurrent calls renew one after the other. */
  private renew(connection: Pick<CoordinatorConnection, 'renewNodeCertificate'>): Promise<void> {
    return this.renewals.run(async () => {
      const { keeper, identity, clock, log } = this.options;
      const { nodeId, instanceId } = identity.current;
      const { clusterId, trustBundle } = requireIdentity(keeper);
      const { requestCount } = this;
      try {
        const request = await keeper.requireRequest();
        const certificate = await connection.renewNodeCertificate(
          create(RenewNodeCertificateRequestSchema, {
            nodeId,
            instanceId,
            csr: request.csr,
            trustBundleGeneration: trustBundle.generation,
          }),
        );
        const of = { nodeId, clusterId, request };
        const renewed = toNodeIdentity(certificate, of, clock.wallTime());
        await keeper.replace(renewed, request);
        this.answeredCount = requestCount; // a later request may be about a newer bundle
        this.handleCertificate(renewed);
        this.counters.renewals.add(1, { result: 'ok' });
        log.info('certificate renewed', describeCertificate(renewed));
      } catch (reason) {
        this.counters.renewals.add(1, { result: 'failed' });
        throw reason;
      }
    });
  }

  private handleCertificate(identity: NodeIdentity): void {
    const { clock, random, log } = this.options;
    this.isExpired = false;
    this.isIdentityRefused = false;
    this.jitter = random.next();
    this.renewedAtMs = clock.now();
    this.renewalDueMs = clock.now() + renewalDelayMs(identity, this.jitter);
    this.wakeup.wake();
    const validity = getValidity(identity, clock.wallTime());
    if (validity === 'valid') return;
    log.warn('the clock of this machine differs from the clock of the coordinator', {
      ...describeCertificate(identity),
      clock: new Date(clock.wallTime()).toISOString(),
    });
  }

  private describeNoToken(): string {
    const { nodeId } = this.options.identity.current;
    return this.refusedToken === undefined
      ? `node ${nodeId} has no identity and no join token; create a token with cloudlessctl token create, and start the agent with --join-token-file FILE`
      : `node ${nodeId} has no identity, and its join token was refused; start the agent with another token`;
  }
}

/** Reasons for which the coordinators accept no certificate of this node any more. */
const REFUSALS: readonly ErrorReason[] = [
  'NODE_BANNED',
  'CREDENTIAL_REVOKED',
  'CERTIFICATE_EXPIRED',
  'CERTIFICATE_INVALID',
  'NODE_NOT_FOUND',
];

/** Reasons for which a join fails until an operator acts. */
const JOIN_REFUSALS: readonly ErrorReason[] = [
  'INVALID_TOKEN',
  'NODE_EXISTS',
  'WRONG_STATE',
  'NO_IDENTITIES',
  'WRONG_CLUSTER',
];

/** Returns what an operator has to do; undefined when the error itself says so. */
function describeRemedy(reason: ErrorReason, nodeId: string): string | undefined {
  if (!REFUSALS.includes(reason)) return undefined;
  const first = reason === 'NODE_BANNED' ? `cloudlessctl node unban ${nodeId}, then ` : '';
  return `${first}cloudlessctl node join-command, then start this agent with the new token: cloudless-agent run --join-token-file FILE`;
}

function requireIdentity(keeper: NodeIdentityKeeper): NodeIdentity {
  if (keeper.current === undefined)
    throw new CloudlessError('precondition', 'this node has no identity');
  return keeper.current;
}

/** Runs calls over a connection, and closes the connection at the end or when `signal` aborts. */
async function withConnection<Result>(
  connection: Pick<CoordinatorConnection, 'close'>,
  signal: AbortSignal,
  work: () => Promise<Result>,
): Promise<Result> {
  const close = (): void => connection.close();
  signal.addEventListener('abort', close, { once: true });
  if (signal.aborted) close();
  try {
    return await work();
  } finally {
    signal.removeEventListener('abort', close);
    close();
  }
}

function describeCertificate({ notBeforeMs, notAfterMs }: NodeIdentity): {
  readonly notBefore: string;
  readonly notAfter: string;
} {
  return {
    notBefore: new Date(notBeforeMs).toISOString(),
    notAfter: new Date(notAfterMs).toISOString(),
  };
}
