import { setMaxListeners } from 'node:events';
import { CloudlessError, errorFields, sleep, type Clock, type Log } from '@cloudless/base';
import type { ResponseHeader } from '../gen/etcd/etcdserverpb/rpc_pb.js';
import { CONNECT_MS, Endpoint, type EtcdTls } from './endpoint.js';
import { createSchemeError, explainConnectFailure, toEtcdFailure } from './etcd-failure.js';
import { findScheme } from './find-scheme.js';

export interface EtcdClientOptions {
  /** URLs of members, `http://` or `https://`. Earlier ones are preferred. */
  readonly endpoints: readonly string[];
  readonly tls?: EtcdTls;
  readonly user?: { readonly name: string; readonly password: string };
  readonly clock: Clock;
  readonly log: Log;
}

/** Time limits of one sort of call, milliseconds. */
export interface CallPolicy {
  /** Limit of one attempt, at one member. */
  readonly attemptMs: number;
  /** Limit of all attempts. */
  readonly totalMs: number;
  /** True: an attempt whose outcome is unknown is not repeated. */
  readonly isWrite: boolean;
  /** True: does not wait for other calls, however many are in flight. Default false. */
  readonly isUrgent?: boolean;
}

/** Reads are repeated at other members until one answers. */
export const READ: CallPolicy = { attemptMs: 2_500, totalMs: 8_000, isWrite: false };
/** Longer than an election of etcd takes, so that most writes during one succeed. */
export const WRITE: CallPolicy = { attemptMs: 3_000, totalMs: 5_000, isWrite: true };
/**
 * A leader renews its lease of 2 s every 0.5 s: a member that does not answer must not use up the
 * time of the lease. The next renewal goes to another member.
 */
export const RENEW: CallPolicy = {
  attemptMs: 450,
  totalMs: 450,
  isWrite: false,
  isUrgent: true, // behind a burst of other calls, the lease would end
};
/** Physical work of etcd on its whole database. */
export const MAINTENANCE: CallPolicy = { attemptMs: 60_000, totalMs: 60_000, isWrite: false };

/** Options that {@link EtcdClient.call} passes to a call of a generated client. */
export interface CallSettings {
  readonly timeoutMs: number;
  readonly headers: Record<string, string>;
  readonly signal: AbortSignal;
}

/**
 * Time in which a member that did not answer a call has to answer over the connection of its
 * watches. Longer than the limit of a renewal, so that a slow member keeps its watches; shorter than
 * the PINGs of a connection need to find a dead member (8 s).
 */
const PROBE_MS = 1_000;
/** Time for which other members are preferred after a member did not answer. */
const SUSPECT_MS = 3_000;
/** The same after a member answered that it cannot serve, for example without a leader. */
const REFUSED_MS = 200;
/** Pause when every member has just failed. */
const PAUSE_MS = 100;
/**
 * Calls in flight, without urgent ones. More wait here, where they cost little, and not in etcd,
 * which refuses calls when too many wait.
 */
export const MAX_CALLS_IN_FLIGHT = 256;

/**
 * Calls members of one etcd cluster: at the same member while that member answers, otherwise at the
 * next one. Never repeats a write that may have been applied.
 */
export class EtcdClient {
  private readonly endpoints: readonly Endpoint[];
  private readonly closing = new AbortController();
  private current = 0;
  private token: Promise<string | undefined> | undefined;
  private clusterId: bigint | undefined;
  private inFlight = 0;
  private readonly waiting: (() => void)[] = [];
  /** Members that are being asked whether they run. */
  private readonly probing = new Set<Endpoint>();

  constructor(private readonly options: EtcdClientOptions) {
    const { endpoints, tls, clock } = options;
    setMaxListeners(0, this.closing.signal); // one of each call in flight
    this.endpoints = endpoints.map(
      (url) => new Endpoint(url, url.startsWith('https:') ? (tls ?? {}) : undefined, clock),
    );
  }

  /** Aborted when this client is closed. */
  get closed(): AbortSignal {
    return this.closing.signal;
  }

  /** All members, for calls that concern each one. */
  get members(): readonly Endpoint[] {
    return this.endpoints;
  }

  /**
   * Makes a call at one member, and again at others as far as the policy allows.
   * @param run - Makes the call with the clients of the endpoint and the given settings.
   * @throws kind `unavailable` or `deadline` when the outcome of a write is unknown, or no member
   *   answered; otherwise the answer of etcd.
   */
  async call<Result extends { readonly header?: ResponseHeader | undefined }>(
    policy: CallPolicy,
    run: (endpoint: Endpoint, settings: CallSettings) => Promise<Result>,
  ): Promise<Result> {
    const callNow = (): Promise<Result> =>
      this.callUntil(this.options.clock.now() + policy.totalMs, policy, run);
    if (policy.isUrgent === true) return callNow();
    await this.enter();
    try {
      return await callNow();
    } finally {
      this.leave();
    }
  }

  /**
   * Selects a member for a watch, with an open connection.
   * @throws kind `unavailable` or `precondition` when that member cannot be reached; the next call
   *   selects another one.
   */
  async openStream(): Promise<{
    readonly endpoint: Endpoint;
    readonly headers: CallSettings['headers'];
  }> {
    const endpoint = this.select();
    try {
      await endpoint.connect('streams', CONNECT_MS);
      const { headers } = await this.toSettings(endpoint, CONNECT_MS);
      return { endpoint, headers };
    } catch (reason) {
      this.suspect(endpoint, reason, true);
      throw reason;
    }
  }

  /** Records that a watch at this member failed. */
  reportStreamFailure(endpoint: Endpoint, reason: unknown): void {
    const failure = toEtcdFailure(reason);
    if (failure.outcome === 'token') this.token = undefined;
    else this.suspect(endpoint, reason, false);
  }

  /**
   * Connects to the endpoints in order until one answers.
   * @throws kind `precondition` or `unauthenticated` when no endpoint answers and the settings of one
   *   are wrong, with the problem of each endpoint. Does not throw when members are only unreachable:
   *   the first call waits for them.
   */
  async requireUsableEndpoint(): Promise<void> {
    const problems: CloudlessError[] = [];
    for (const endpoint of this.endpoints) {
      try {
        await endpoint.connect('calls', CONNECT_MS);
        const settings = await this.toSettings(endpoint, CONNECT_MS);
        await endpoint.maintenance.status({}, settings);
        return;
      } catch (reason) {
        problems.push(await explainFirstFailure(endpoint.url, reason));
      }
    }
    const wrong = problems.find(({ kind }) => kind !== 'unavailable' && kind !== 'deadline');
    if (wrong === undefined) return;
    throw new CloudlessError(
      wrong.kind,
      `no endpoint of etcd can be used: ${problems.map(({ message }) => message).join('; ')}`,
      { cause: wrong },
    );
  }

  /** Ends all calls. Later calls fail with kind `unavailable`. */
  close(): void {
    this.closing.abort(createClosedError());
    for (const endpoint of this.endpoints) endpoint.close();
  }

  private async callUntil<Result extends { readonly header?: ResponseHeader | undefined }>(
    deadline: number,
    policy: CallPolicy,
    run: (endpoint: Endpoint, settings: CallSettings) => Promise<Result>,
  ): Promise<Result> {
    let lastError: CloudlessError | undefined;
    for (let attempt = 1; ; attempt += 1) {
      if (this.closing.signal.aborted) throw createClosedError();
      const remainingMs = deadline - this.options.clock.now();
      if (remainingMs <= 0) throw lastError ?? createLateError();
      if (attempt > 1) await this.pauseWhenAllFail();
      const endpoint = this.select();
      const failure = await this.attempt(endpoint, policy, remainingMs, run);
      if ('result' in failure) return failure.result;
      lastError = failure.error;
      if (!failure.mayRepeat) throw failure.error;
    }
  }

  private async attempt<Result extends { readonly header?: ResponseHeader | undefined }>(
    endpoint: Endpoint,
    policy: CallPolicy,
    remainingMs: number,
    run: (endpoint: Endpoint, settings: CallSettings) => Promise<Result>,
  ): Promise<
    { readonly result: Result } | { readonly error: CloudlessError; readonly mayRepeat: boolean }
  > {
    const timeoutMs = Math.max(1, Math.floor(Math.min(policy.attemptMs, remainingMs)));
    let settings: CallSettings;
    try {
      await endpoint.connect('calls', Math.min(CONNECT_MS, timeoutMs));
      settings = await this.toSettings(endpoint, timeoutMs);
    } catch (reason) {
      const error = toCloudlessError(reason);
      if (error.kind === 'unauthenticated') return { error, mayRepeat: false };
      this.suspect(endpoint, reason, true);
      return { error, mayRepeat: true };
    }
    try {
      const result = await run(endpoint, settings);
      this.checkCluster(endpoint, result.header);
      endpoint.suspectUntil = 0;
      return { result };
    } catch (reason) {
      if (reason instanceof CloudlessError) return { error: reason, mayRepeat: false };
      if (this.closing.signal.aborted) return { error: createClosedError(), mayRepeat: false };
      const { error, outcome, isSilent } = toEtcdFailure(reason);
      if (outcome === 'answer') return { error, mayRepeat: false };
      if (outcome === 'token') this.token = undefined;
      else this.suspect(endpoint, reason, isSilent);
      return { error, mayRepeat: outcome !== 'unknown' || !policy.isWrite };
    }
  }

  private async toSettings(endpoint: Endpoint, timeoutMs: number): Promise<CallSettings> {
    const token = await this.authenticate(endpoint);
    return {
      timeoutMs,
      signal: this.closing.signal,
      // A member without a leader refuses at once instead of waiting for one.
      headers: { hasleader: 'true', ...(token === undefined ? {} : { token }) },
    };
  }

  /** Returns the token of the user; undefined without a user, or while etcd has no users. */
  private authenticate(endpoint: Endpoint): Promise<string | undefined> {
    const { user } = this.options;
    if (user === undefined) return Promise.resolve(undefined);
    this.token ??= endpoint
      .connect('calls', CONNECT_MS)
      .then(() =>
        endpoint.auth.authenticate(user, {
          timeoutMs: CONNECT_MS,
          signal: this.closing.signal,
        }),
      )
      .then(
        ({ token }) => token,
        (reason: unknown) => {
          if (String(reason).includes('authentication is not enabled')) return undefined;
          this.token = undefined;
          throw reason instanceof CloudlessError ? reason : toEtcdFailure(reason).error;
        },
      );
    return this.token;
  }

  private checkCluster(endpoint: Endpoint, header: ResponseHeader | undefined): void {
    if (header === undefined || header.clusterId === 0n) return;
    this.clusterId ??= header.clusterId;
    if (header.clusterId === this.clusterId) return;
    throw new CloudlessError(
      'precondition',
      `${endpoint.url} belongs to another etcd cluster than the other endpoints; name only members of one cluster in --etcd-endpoints`,
    );
  }

  /**
   * Returns the current endpoint, or the next one that has not just failed. When all have, returns
   * the one that may be asked first again.
   */
  private select(): Endpoint {
    const { endpoints } = this;
    const now = this.options.clock.now();
    let best: number | undefined;
    for (let step = 0; step < endpoints.length; step += 1) {
      const index = (this.current + step) % endpoints.length;
      const suspectUntil = endpoints[index]?.suspectUntil ?? 0;
      if (suspectUntil <= now) {
        best = index;
        break;
      }
      if (suspectUntil < (endpoints[best ?? -1]?.suspectUntil ?? Infinity)) best = index;
    }
    const endpoint = endpoints[best ?? -1];
    if (best === undefined || endpoint === undefined)
      throw new CloudlessError('invalid', 'no endpoint of etcd is named');
    this.current = best;
    return endpoint;
  }

  private suspect(endpoint: Endpoint, reason: unknown, isSilent: boolean): void {
    const now = this.options.clock.now();
    if (endpoint.suspectUntil <= now && !this.closing.signal.aborted)
      this.options.log.warn('etcd member failed', {
        endpoint: endpoint.url,
        ...errorFields(reason),
      });
    endpoint.suspectUntil = now + (isSilent ? SUSPECT_MS : REFUSED_MS);
    if (isSilent) void this.checkStreams(endpoint);
  }

  /**
   * Ends the watches of a member whose connection of watches answers nothing: they continue at
   * another member. A member that is only slow, for example because etcd has no leader, keeps them.
   */
  private async checkStreams(endpoint: Endpoint): Promise<void> {
    if (this.probing.has(endpoint)) return;
    this.probing.add(endpoint);
    try {
      await endpoint.checkStreams(PROBE_MS, this.closing.signal);
    } catch (reason) {
      // A member that refuses the call answers.
      if (toEtcdFailure(reason).outcome === 'unknown') endpoint.resetStreams();
    } finally {
      this.probing.delete(endpoint);
    }
  }

  private async pauseWhenAllFail(): Promise<void> {
    const { clock } = this.options;
    const now = clock.now();
    if (this.endpoints.every(({ suspectUntil }) => suspectUntil > now))
      await sleep(clock, PAUSE_MS, this.closing.signal).catch(() => undefined);
  }

  private async enter(): Promise<void> {
    if (this.inFlight >= MAX_CALLS_IN_FLIGHT)
      await new Promise<void>((resolve) => this.waiting.push(resolve));
    else this.inFlight += 1;
  }

  /** Hands the place of a call to the next one that waits. */
  private leave(): void {
    const next = this.waiting.shift();
    if (next === undefined) this.inFlight -= 1;
    else next();
  }
}

/**
 * Explains why the first call to an endpoint failed. A server with TLS 1.3 refuses a client
 * certificate only after the client is connected.
 */
async function explainFirstFailure(url: string, reason: unknown): Promise<CloudlessError> {
  const known = toCloudlessError(reason);
  if (known.kind !== 'unavailable' && known.kind !== 'internal') return known;
  const error = reason instanceof CloudlessError ? reason : explainConnectFailure(url, reason);
  if (error.kind !== 'unavailable') return error;
  const scheme = await findScheme(url);
  return scheme === undefined ? error : createSchemeError(url, scheme, reason);
}

function createLateError(): CloudlessError {
  return new CloudlessError('deadline', 'etcd did not answer in time');
}

function createClosedError(): CloudlessError {
  return new CloudlessError('STORE_UNAVAILABLE', 'the store is closed');
}

function toCloudlessError(reason: unknown): CloudlessError {
  return reason instanceof CloudlessError ? reason : toEtcdFailure(reason).error;
}
