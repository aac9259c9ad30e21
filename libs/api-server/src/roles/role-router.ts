import type { DescMethod, DescService } from '@bufbuild/protobuf';
import type { ConnectRouter, HandlerContext, ServiceImpl } from '@connectrpc/connect';
import {
  CoordinatorService,
  UserService,
  beginLongWaitKey,
  type AgentMessage,
  type IssueUserCertificateResponse,
} from '@cloudless/api';
import { CloudlessError, type Timer } from '@cloudless/base';
import type { ClusterState } from '@cloudless/cluster-state';
import { readChain } from '@cloudless/identity/x509';
import { CallAccess, type AccessDeps } from '../access/call-access.js';
import type { ApiServerDeps } from '../ports.js';
import { guardService } from '../routes/service-guard.js';
import type { CallHandler, CallHandlers } from './call-handlers.js';
import { EndableStreams } from './endable-streams.js';
import { isForwarded, namesClient } from './forwarding-headers.js';
import { HeldSessions, withFirst } from './held-sessions.js';
import { ChangeSignal, type KnownLeader } from './leader-directory.js';
import { LeaderForwarder, isReadMethod, type LeaderForwarderDeps } from './leader-forwarder.js';
import { createNotLeaderError, createRoleChangedError } from './role-errors.js';
import { SERVED_SERVICES, getServedBy } from './served-by.js';
import { createStaleStreamError, createStaleViewError, isViewStale } from './stale-view.js';

/** The handlers that serve calls in one role. */
export interface RolePart {
  readonly role: 'leader' | 'follower';
  /** Of a leader: all calls. Of a follower: the reads that every coordinator serves. */
  readonly calls: CallHandlers;
}

export type RoleRouterDeps = AccessDeps &
  LeaderForwarderDeps &
  Pick<ApiServerDeps, 'replaceCredential'> & {
    readonly state: ClusterState;
  };

/** Header of a response of the leader: the revision of the store that shows the change. */
const REVISION_HEADER = 'cloudless-revision';

/**
 * Serves each call where the table of `served-by.ts` says: by the handlers of this coordinator, or
 * by forwarding to the leader. The handlers change with the role of this coordinator; the routes
 * are registered once.
 */
export class RoleRouter {
  private readonly access: CallAccess;
  private readonly forwarder: LeaderForwarder;
  private readonly heldSessions: HeldSessions;
  private part: RolePart | undefined;
  private streams = new EndableStreams();
  private isDraining = false;
  /** Unary calls that the handlers of this coordinator run, without reads. */
  private running = 0;
  private ageTimer: Timer | undefined;
  private readonly ended = new ChangeSignal();
  /** Monotonic time until which this coordinator hands its leadership over, milliseconds. */
  private handOverUntilMs = Number.NEGATIVE_INFINITY;

  constructor(private readonly deps: RoleRouterDeps) {
    this.access = new CallAccess(deps);
    this.forwarder = new LeaderForwarder(deps);
    this.heldSessions = new HeldSessions({
      clock: deps.clock,
      waitForChange: (timeoutMs, signal) => this.forwarder.waitForChange(timeoutMs, signal),
      sleep: (delayMs, signal) => this.forwarder.sleep(delayMs, signal),
      isLeading: () => this.leading !== undefined,
      findOtherLeader: () => this.otherLeader,
      isCutOff: () => this.isCutOff,
    });
    this.watchAge();
  }

  /** Registers all services of a coordinator. */
  readonly registerRoutes = (router: ConnectRouter): void => {
    for (const service of SERVED_SERVICES) this.register(router, service);
  };

  /**
   * Serves calls by other handlers from now on, and ends the streams of the handlers before.
   * @param part - Undefined while the role changes: calls wait.
   */
  serve(part: RolePart | undefined): void {
    const { streams } = this;
    this.part = part;
    this.isDraining = false;
    this.streams = new EndableStreams();
    streams.end(createRoleChangedError(this.namedLeader));
    this.forwarder.wake();
  }

  /**
   * Starts no calls of the leader any more, until the next {@link serve}: they wait for the next
   * leader. Resolves when the changes that run have ended, or after `timeoutMs`.
   * @param except - Number of running calls that need not end.
   */
  async drain(timeoutMs: number, except = 0): Promise<void> {
    const { clock } = this.deps;
    const endAtMs = clock.now() + timeoutMs;
    this.isDraining = true;
    this.handOverUntilMs = endAtMs + MAX_REVOCATION_MS;
    const never = new AbortController().signal;
    while (this.running > except && clock.now() < endAtMs)
      await this.ended.wait(clock, endAtMs - clock.now(), never);
  }

  close(): void {
    this.ageTimer?.cancel();
    this.heldSessions.close();
    this.forwarder.close();
  }

  /**
   * The leader that errors name: none when the view is so old that its lease may have ended. A
   * client that dials a leader of the past loses time that a node does not have.
   */
  private get namedLeader(): KnownLeader | undefined {
    return this.isCutOff ? undefined : this.deps.leaders.leader();
  }

  /**
   * The leader to which agents are sent: not this coordinator, which may be about to lead, has just
   * led, or has been restarted before the lease of its earlier process ends.
   */
  private get otherLeader(): KnownLeader | undefined {
    const { namedLeader } = this;
    return namedLeader?.coordinatorId === this.deps.coordinatorId ? undefined : namedLeader;
  }

  /** True while the view is so old that the leader that it shows may have lost its lease. */
  private get isCutOff(): boolean {
    return this.deps.state.viewAgeMs > MAX_LEADER_AGE_MS;
  }

  /** The handlers of the leader, while this coordinator leads and does not drain. */
  private get leading(): RolePart | undefined {
    return this.part?.role === 'leader' && !this.isDraining ? this.part : undefined;
  }

  private register(router: ConnectRouter, service: DescService): void {
    const handlers = Object.fromEntries(
      service.methods.map((method) => [method.localName, this.createHandler(method)]),
    ) as ServiceImpl<DescService>;
    // A coordinator that forwards its reads leaves the wait to the leader.
    const waitForView: CallAccess['waitForRequestedRevision'] = (request, signal) =>
      this.isStale ? undefined : this.access.waitForRequestedRevision(request, signal);
    router.service(service, guardService(this.access, service, handlers, waitForView));
  }

  private createHandler(method: DescMethod): CallHandler {
    const servedBy = getServedBy(method);
    return (request, context) => {
      const mustLead = this.mustLead(context);
      const { isStale } = this;
      const isRead = !mustLead && (servedBy === 'records' || servedBy === 'liveStatus');
      const part = isRead && (!isStale || method === SERVER_INFO) ? this.part : this.leading;
      if (part !== undefined) return this.serveHere(part, method, request, context);
      if (mustLead) return this.refuseForwarded(method, request, context);
      if (method === SESSION)
        return this.holdSession(request as AsyncIterable<AgentMessage>, context);
      if (servedBy === 'leaderDirectly')
        throw createNotLeaderError(this.otherLeader, AGENT_STREAMS);
      const takeOver = (): { readonly response: unknown } | undefined => {
        const { leading } = this;
        return leading && { response: this.serveHere(leading, method, request, context) };
      };
      const options = {
        createNoLeaderError: () => this.createNoLeaderError(),
        ...(isStale ? { holdMs: STALE_HOLD_MS } : {}),
      };
      return method.methodKind === 'unary'
        ? this.forwarder
            .forwardUnary(method as never, request as object, context, takeOver, options)
            .then((response) => this.showChange(method, response, context))
        : this.forwarder.forwardStream(method as never, request, context, takeOver, options);
    };
  }

  /**
   * Lets an agent wait while no coordinator leads that the agent reaches, and then serves the
   * session as the leader, or refuses the session with the address of the leader.
   */
  private async *holdSession(
    messages: AsyncIterable<AgentMessage>,
    context: HandlerContext,
  ): AsyncGenerator<unknown> {
    const { access, heldSessions } = this;
    context.values.get(beginLongWaitKey)?.();
    const incoming = messages[Symbol.asyncIterator]();
    try {
      const first = await heldSessions.readFirst(incoming);
      const hello = first?.done === true ? undefined : first?.value.message;
      if (first !== undefined && hello?.case === 'hello') {
        access.requireNode(access.getCaller(context), hello.value.nodeId);
        await heldSessions.hold(hello.value, context.signal);
        context.signal.throwIfAborted();
        const { leading } = this;
        const all = withFirst(first, incoming);
        if (leading !== undefined)
          return yield* this.serveHere(leading, SESSION, all, context) as AsyncIterable<unknown>;
      }
      throw createNotLeaderError(this.otherLeader, AGENT_STREAMS);
    } finally {
      incoming.return?.().catch(() => undefined);
    }
  }

  /**
   * Refuses a call that another coordinator has forwarded here as to the leader. A unary call waits
   * while this coordinator hands over, because the other coordinator would send the call again and
   * again, and while this coordinator is about to lead, which others may see first: then the call
   * is served.
   */
  private refuseForwarded(method: DescMethod, request: unknown, context: HandlerContext): unknown {
    const { clock } = this.deps;
    const refuse = (): never => {
      throw createNotLeaderError(this.namedLeader);
    };
    const giveUpAtMs = Math.max(clock.now() + TAKE_OVER_MS, this.handOverUntilMs);
    const mayLead = (): boolean => clock.now() < giveUpAtMs && this.mayLead;
    if (method.methodKind !== 'unary' || !mayLead()) return refuse();
    const wait = async (): Promise<unknown> => {
      while (mayLead()) {
        await this.forwarder.waitForChange(giveUpAtMs - clock.now(), context.signal);
        context.signal.throwIfAborted();
        const { leading } = this;
        if (leading !== undefined) return this.serveHere(leading, method, request, context);
      }
      return refuse();
    };
    return wait();
  }

  /**
   * True while no other coordinator leads, and this one still has its lease or has not led lately.
   */
  private get mayLead(): boolean {
    const { clock, leaders, coordinatorId } = this.deps;
    const leader = leaders.leader();
    return leader === undefined
      ? clock.now() >= this.handOverUntilMs
      : leader.coordinatorId === coordinatorId;
  }

  /** True while the view is too old for reads: the leader serves them. */
  private get isStale(): boolean {
    return isViewStale(this.deps.state);
  }

  /** The error of a call that reached no leader. */
  private createNoLeaderError(): CloudlessError {
    return this.isStale
      ? createStaleViewError(this.deps.state, 'nor any leader')
      : createNotLeaderError(this.namedLeader);
  }

  /** Ends the streams of the handlers of this coordinator when its view becomes too old for them. */
  private watchAge(): void {
    this.ageTimer = this.deps.clock.setTimer(AGE_CHECK_MS, () => {
      if (this.isCutOff) this.forwarder.wake();
      if (this.isStale && this.streams.isUsed) {
        const { streams } = this;
        this.streams = new EndableStreams();
        streams.end(createStaleStreamError(this.deps.state));
      }
      this.watchAge();
    });
  }

  /**
   * Returns true for a call that another coordinator has sent here as to the leader.
   * @throws kind `denied` in a cluster without TLS when the call names its client.
   */
  private mustLead({ requestHeader }: HandlerContext): boolean {
    if (!isForwarded(requestHeader)) return false;
    if (this.deps.identity === undefined && namesClient(requestHeader)) {
      throw new CloudlessError(
        'denied',
        'in a cluster without TLS no call is forwarded for a client; leave out the headers cloudless-forwarded-*',
      );
    }
    return true;
  }

  private serveHere(
    { calls, role }: RolePart,
    method: DescMethod,
    request: unknown,
    context: HandlerContext,
  ): unknown {
    const handler = calls.get(method);
    if (handler === undefined)
      throw new CloudlessError('unimplemented', `${method.name} is not served in the role ${role}`);
    if (method.methodKind !== 'unary')
      return this.streams.add(() => handler(request, context) as AsyncIterable<unknown>);
    const response = isReadMethod(method)
      ? handler(request, context)
      : this.countRunning(handler(request, context));
    return isForwarded(context.requestHeader) ? this.addRevision(response, context) : response;
  }

  private countRunning(response: unknown): unknown {
    if (!(response instanceof Promise)) return response;
    this.running += 1;
    const end = (): void => {
      this.running -= 1;
      this.ended.notify();
    };
    response.then(end, end);
    return response;
  }

  private async addRevision(response: unknown, context: HandlerContext): Promise<unknown> {
    const result = await response;
    context.responseHeader.set(REVISION_HEADER, String(this.deps.state.view().revision));
    return result;
  }

  /**
   * Returns a forwarded response once the view of this coordinator shows its change, so that a
   * client that reads here next finds what it has written. From then on, this coordinator accepts
   * a certificate that the leader has renewed for the connection.
   */
  private async showChange(
    method: DescMethod,
    response: unknown,
    context: HandlerContext,
  ): Promise<unknown> {
    const revision = context.responseHeader.get(REVISION_HEADER);
    const show = async (): Promise<void> => {
      if (revision !== null) await this.deps.state.waitForRevision(BigInt(revision));
      if (method === ISSUE_USER_CERTIFICATE)
        this.replaceCredential(response as IssueUserCertificateResponse, context);
    };
    await Promise.race([
      show().catch(() => undefined),
      this.forwarder.sleep(MAX_SHOW_MS, context.signal),
    ]);
    return response;
  }

  private replaceCredential(
    { certificateChain }: IssueUserCertificateResponse,
    context: HandlerContext,
  ): void {
    const caller = this.access.getCaller(context);
    // With a bearer token, the caller has received a first certificate, for other connections.
    if (caller.credential?.serial !== undefined)
      this.deps.replaceCredential?.(caller, readChain(certificateChain));
  }
}

/** Age of the view from which on the leader that it shows may be gone, ms: the lease of a leader. */
const MAX_LEADER_AGE_MS = 2_000;
/** Interval at which the age of the view is checked for open streams, milliseconds. */
const AGE_CHECK_MS = 500;
/**
 * Time for which a call at a coordinator with an old view waits for the leader, milliseconds.
 * Short, because another coordinator may know the leader.
 */
const STALE_HOLD_MS = 1_000;
/** Names the coordinators to clients, who need them most while one is cut off. */
const SERVER_INFO = CoordinatorService.method.getServerInfo;
const ISSUE_USER_CERTIFICATE = UserService.method.issueUserCertificate;
const SESSION = CoordinatorService.method.session;
/** Subject of the error of a call that an agent has to make at the leader. */
const AGENT_STREAMS = 'the streams of agents are';
/** Longest time for which forwarded calls wait for the end of the lease that is handed over, ms. */
const MAX_REVOCATION_MS = 500;
/**
 * Time for which a coordinator that knows no leader, or itself as the leader, holds a forwarded
 * call before it leads, milliseconds: views of coordinators differ by a few milliseconds.
 */
const TAKE_OVER_MS = 200;
/** Longest wait for the view after a forwarded call, milliseconds: the change itself is durable. */
const MAX_SHOW_MS = 1_000;
