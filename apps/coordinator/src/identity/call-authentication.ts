import type { HandlerContext } from '@connectrpc/connect';
import { CoordinatorService } from '@cloudless/api';
import {
  Authenticator,
  NodeCertificateUseRecorder,
  type ApiServerDeps,
  type ReportRefusal,
} from '@cloudless/api-server';
import type { Timer } from '@cloudless/base';
import type { ClusterState } from '@cloudless/cluster-state';
import type { Metrics } from '@cloudless/observability';
import {
  callerKey,
  type OpsServerOptions,
  type RpcServer,
  type RpcServerOptions,
} from '@cloudless/rpc-node/server';
import type { CoordinatorMachine } from '../coordinator-machine.js';
import type { CoordinatorIdentity } from './coordinator-identity.js';

/**
 * Time within which changes of users, bans and certificates are collected before all open calls are
 * checked again. A rotation renews thousands of certificates one after the other.
 */
const RECHECK_DELAY_MS = 50;

/** The authentication of calls, as the servers and the handlers need it. */
export interface CallAuthentication {
  readonly apiDeps: Pick<
    ApiServerDeps,
    'identity' | 'getCaller' | 'replaceCredential' | 'identifyCertificate'
  >;
  readonly rpcOptions: Pick<RpcServerOptions, 'tls' | 'authorize'>;
  readonly opsOptions: Pick<OpsServerOptions, 'tls' | 'authorize'>;
  /** Returns the certificates with which a call is forwarded, DER. Undefined: none. */
  getChain(context: HandlerContext): readonly Uint8Array[] | undefined;
  /** Ends open calls soon after their clients have lost the right to them. */
  recheckOnChange(rpc: Pick<RpcServer, 'recheckCallers'>): void;
  close(): Promise<void>;
}

/** Creates the authentication of a coordinator with TLS. */
export function createCallAuthentication({
  state,
  machine: { clock, log },
  identity: { identities, server },
  metrics,
  reportRefusal,
}: {
  readonly state: ClusterState;
  readonly machine: CoordinatorMachine;
  readonly identity: CoordinatorIdentity;
  readonly metrics: Metrics;
  readonly reportRefusal?: ReportRefusal | undefined;
}): CallAuthentication {
  const identityLog = log.child({ component: 'identity' });
  const recorder = new NodeCertificateUseRecorder({ state, clock, log: identityLog });
  const authenticator = new Authenticator({
    ...{ state, clock, log: identityLog, identity: identities, meter: metrics },
    reportRefusal,
    onNodeCertificateUsed: (nodeId, serial) => {
      if (state.isLeading) recorder.record(nodeId, serial);
    },
  });
  let timer: Timer | undefined;
  let unsubscribe: () => void = () => undefined;
  return {
    apiDeps: {
      identity: identities,
      getCaller: (context) => context.values.get(callerKey),
      replaceCredential: (caller, certificate) =>
        authenticator.replaceCredential(caller, certificate),
      identifyCertificate: authenticator.identifyCertificate,
    },
    rpcOptions: { tls: server, authorize: (call) => authenticator.authorize(call) },
    opsOptions: {
      tls: server,
      // Metrics name nodes and count workloads, which every viewer of the whole cluster may see.
      authorize: (request) => {
        const { listNodes } = CoordinatorService.method;
        authenticator.authorize({ ...request, method: listNodes, isServedHere: true });
      },
    },
    getChain: ({ values }) => {
      const caller = values.get(callerKey);
      return caller === undefined ? undefined : authenticator.getChain(caller);
    },
    recheckOnChange: (rpc) => {
      unsubscribe = authenticator.onChange(() => {
        timer ??= clock.setTimer(RECHECK_DELAY_MS, () => {
          timer = undefined;
          rpc.recheckCallers();
        });
      });
    },
    close: async () => {
      unsubscribe();
      timer?.cancel();
      authenticator.close();
      await recorder.close();
    },
  };
}
