import { create } from '@bufbuild/protobuf';
import type { HandlerContext } from '@connectrpc/connect';
import {
  PortForwardEndSchema,
  PortForwardRequestSchema,
  RelayNetworkResponseSchema,
  RelayStartSchema,
  TunnelFrameSchema,
  readFirstMessage,
  type PortForwardRequest,
  type RelayNetworkRequest,
  type RelayNetworkResponse,
  type TunnelFrame,
} from '@cloudless/api';
import { CloudlessError, type Clock } from '@cloudless/base';
import type { ClusterState } from '@cloudless/cluster-state';
import type { CallAccess } from '../access/call-access.js';
import type { TunnelOpener } from '../stream/tunnel-hub.js';
import { requireProxyOf } from './proxy-caller.js';

export interface NetworkRelayDeps {
  readonly state: ClusterState;
  readonly clock: Clock;
  readonly access: CallAccess;
  readonly tunnels: TunnelOpener;
}

/**
 * Serves RelayNetwork: splices the stream of a network proxy with a tunnel to the agent of another
 * node, which passes the bytes to its own proxy. The proxies speak TLS with each other, so this
 * coordinator sees only ciphertext.
 */
export class NetworkRelay {
  constructor(private readonly deps: NetworkRelayDeps) {}

  /**
   * Handles the RelayNetwork call. Ends when the proxy of the target ends its side.
   * @throws kind `notFound` for a target that is not in the cluster or is banned, `precondition` for
   *   one without a network proxy, `unavailable` when its agent is not connected, `exhausted` when
   *   too many connections to the target are relayed.
   */
  async *relayNetwork(
    requests: AsyncIterable<RelayNetworkRequest>,
    context: HandlerContext,
  ): AsyncGenerator<RelayNetworkResponse> {
    const { clock, state, tunnels } = this.deps;
    const items = requests[Symbol.asyncIterator]();
    const first = (await readFirstMessage(items, clock))?.message;
    if (first?.case !== 'target')
      throw new CloudlessError('invalid', 'target: the first message must name the target');
    const { fromNodeId, nodeId } = first.value;
    const view = state.view();
    requireProxyOf(fromNodeId, { ...this.deps, view }, context);
    if (nodeId === fromNodeId)
      throw new CloudlessError('invalid', 'target.node_id: must be another node than the caller');
    const target = view.node(nodeId)?.value;
    if (target === undefined || view.nodeBan(nodeId) !== undefined)
      throw new CloudlessError('NODE_NOT_FOUND', `node "${nodeId}" is not in this cluster`);
    if (target.hello?.network === undefined)
      throw new CloudlessError('precondition', `node "${nodeId}" has no network proxy`);
    const frames = tunnels.open(
      nodeId,
      { case: 'relay', value: create(RelayStartSchema, { fromNodeId }) },
      context.signal,
      streamInput(items),
    );
    for await (const { frame } of frames) {
      if (frame.case !== 'forwardOutput') continue;
      const { response } = frame.value;
      if (response.case === 'end') return;
      if (response.case === 'data')
        yield create(RelayNetworkResponseSchema, { data: response.value });
    }
  }
}

/** Streams the data after the first message as frames for the agent, then the end. */
async function* streamInput(
  items: AsyncIterator<RelayNetworkRequest>,
): AsyncGenerator<TunnelFrame> {
  for (let item = await items.next(); item.done !== true; item = await items.next()) {
    const { message } = item.value;
    if (message.case === 'target')
      throw new CloudlessError('invalid', 'target: only the first message names the target');
    if (message.case === 'data') yield toFrame({ case: 'data', value: message.value });
  }
  yield toFrame({ case: 'end', value: create(PortForwardEndSchema) });
}

function toFrame(request: PortForwardRequest['request']): TunnelFrame {
  const value = create(PortForwardRequestSchema, { request });
  return create(TunnelFrameSchema, { frame: { case: 'forwardInput', value } });
}
