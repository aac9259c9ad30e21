import { createRouterTransport, type Transport } from '@connectrpc/connect';
import { createErrorInterceptor, createValidationInterceptor } from '@cloudless/api';
import { createSeededRandom, silentLog } from '@cloudless/base';
import { openClusterState, type ClusterState } from '@cloudless/cluster-state';
import type { StateStore } from '@cloudless/state-store';
import { Authenticator } from '../access/authenticator.js';
import type { KnownLeader } from '../roles/leader-directory.js';
import { RoleRouter, type RolePart } from '../roles/role-router.js';
import type { ApiTestBed } from './api-test-bed.js';
import { CONNECTION_HEADER } from './scripted-agent.js';

/** Where a {@link FollowerBed} sends the calls of a leader. */
export interface FakeLeader {
  readonly known: KnownLeader;
  /** Throws when the leader is not reached. */
  readonly connect: () => Transport;
}

/** The leader `c1`, whose coordinator is an {@link ApiTestBed}. */
export function createFakeLeader(bed: ApiTestBed, epoch = 1n): FakeLeader {
  return {
    known: { epoch, address: 'http://c1', coordinatorId: 'c1' },
    connect: () => bed.transport,
  };
}

/**
 * A coordinator `c2` that follows the store of a test bed, and forwards calls to the coordinator that
 * the test says. The calls of this coordinator arrive at the leader on the connection `c2`.
 */
export class FollowerBed {
  readonly transport: Transport;
  private readonly listeners = new Set<() => void>();
  private current: FakeLeader | undefined;

  private constructor(
    private readonly bed: ApiTestBed,
    readonly state: ClusterState,
    readonly router: RoleRouter,
    /** Authenticates the calls of clients; undefined without identities. */
    readonly authenticator: Authenticator | undefined,
  ) {
    this.transport = createRouterTransport(router.registerRoutes, {
      router: {
        interceptors: [
          createErrorInterceptor(() => undefined),
          createValidationInterceptor(),
          bed.createAuthorizer(authenticator),
        ],
      },
    });
  }

  /**
   * @param store - The connection of this coordinator to the store. It then authenticates calls by
   *   its own view. Default: connection and authentication of the bed.
   */
  static async open(bed: ApiTestBed, store: StateStore = bed.store): Promise<FollowerBed> {
    const { clock, identity } = bed;
    const state = await openClusterState({
      ...{ store, clock, random: createSeededRandom(2), log: silentLog },
      holder: 'c2',
      leadership: 'follow',
    });
    const authenticator =
      identity === undefined || store === bed.store
        ? bed.authenticator
        : new Authenticator({ ...{ state, clock, identity }, log: silentLog });
    let opened: FollowerBed | undefined;
    const router = new RoleRouter({
      ...{ state, clock, log: silentLog, coordinatorId: 'c2' },
      ...(identity === undefined ? {} : { identity, getCaller: bed.getCaller }),
      replaceCredential: (caller, renewed) => authenticator?.replaceCredential(caller, renewed),
      leaders: {
        leader: () => opened?.current?.known,
        onChange: (listener) => {
          opened?.listeners.add(listener);
          return () => opened?.listeners.delete(listener);
        },
      },
      connect: async () => {
        if (opened?.current === undefined) throw new Error('no leader');
        return withConnection(opened.current.connect(), 'c2');
      },
      getClient: (context) => {
        if (identity === undefined) return undefined;
        const name = context.requestHeader.get(CONNECTION_HEADER);
        const connection = name === null ? undefined : bed.connection(name);
        const caller = bed.getCaller(context);
        return {
          remoteAddress: connection?.remoteAddress ?? '',
          chainDer: caller && authenticator?.getChain(caller),
        };
      },
    });
    opened = new FollowerBed(bed, state, router, authenticator);
    router.serve(opened.createFollowerPart());
    return opened;
  }

  /** Makes another coordinator the leader. Default: none. */
  setLeader(leader?: FakeLeader): void {
    this.current = leader;
    for (const listener of [...this.listeners]) listener();
  }

  /** The handlers of this coordinator as a follower. */
  createFollowerPart(): RolePart {
    return { role: 'follower', calls: this.bed.createReadServer(this.state).calls };
  }

  async close(): Promise<void> {
    this.router.close();
    await this.state.close();
  }
}

/** Sends the calls of a transport on the connection with this name. */
function withConnection(transport: Transport, name: string): Transport {
  const addName = (header: ConstructorParameters<typeof Headers>[0]): Headers => {
    const headers = new Headers(header);
    headers.set(CONNECTION_HEADER, name);
    return headers;
  };
  return {
    unary: (method, signal, timeoutMs, header, ...rest) =>
      transport.unary(method, signal, timeoutMs, addName(header), ...rest),
    stream: (method, signal, timeoutMs, header, ...rest) =>
      transport.stream(method, signal, timeoutMs, addName(header), ...rest),
  };
}
