import { create } from '@bufbuild/protobuf';
import { durationMs } from '@bufbuild/protobuf/wkt';
import {
  CloudlessError,
  errorFields,
  errorKindOf,
  type Clock,
  type Log,
  type Timer,
} from '@cloudless/base';
import {
  toTunnelError,
  LogChannelFramesSchema,
  splitExecResult,
  TunnelEndSchema,
  TunnelErrorSchema,
  TunnelFrameSchema,
  TunnelRefusedSchema,
  type ExecCommandResponse,
  type ExecRequest,
  type OpenTunnel,
  type PortForwardRequest,
  type TunnelError,
  type TunnelFrame,
  type TunnelRefused,
} from '@cloudless/api';
import type {
  CoordinatorConnection,
  CoordinatorTransport,
} from '../session/coordinator-transport.js';
import type { NodeNetworkAccess } from '../network/node-network.js';
import type { ContainerService } from './container-service.js';
import { LogChannel } from './log-channel.js';
import { mergeByArrival } from './merge-streams.js';
import { relayStream } from './port-forward.js';
import { TunnelInbox } from './tunnel-inbox.js';

/**
 * Maximum number of open tunnels of a node. Coordinators open at most 32, which bounds the load
 * that clients can cause. The agent accepts a few more, as tunnels that the coordinator has just
 * closed may not have ended on this side.
 */
export const MAX_TUNNELS = 40;
/**
 * Maximum number of open tunnels that carry relayed connections, in addition to {@link MAX_TUNNELS}:
 * one for each node whose proxy cannot dial this node.
 */
export const MAX_RELAYS = 512;
/** Time limit to dial when the request sets none, milliseconds. */
const DIAL_TIMEOUT_MS = 10_000;
/**
 * Ping interval, milliseconds. A coordinator that disappeared without closing the connection is
 * detected within twice this time, because commands that its clients started must end within 10 s.
 */
const PING_MS = 3_000;

export interface TunnelServerOptions {
  readonly transport: CoordinatorTransport;
  readonly service: ContainerService;
  /** The network proxy of this node, for relayed connections. Absent: the node has none. */
  readonly network?: NodeNetworkAccess | undefined;
  readonly nodeId: string;
  readonly clock: Clock;
  readonly log: Log;
}

interface OpenedTunnel {
  readonly controller: AbortController;
  readonly isRelay: boolean;
}

/**
 * Serves tunnels that a coordinator requests by OpenTunnel. Each tunnel has its own connection, so
 * that a slow reader delays neither the session nor another tunnel.
 */
export class TunnelServer {
  private readonly openTunnels = new Map<string, OpenedTunnel>();
  private readonly serving = new Set<Promise<void>>();
  private closed = false;

  constructor(private readonly options: TunnelServerOptions) {}

  /** Number of open tunnels. */
  get size(): number {
    return this.openTunnels.size;
  }

  /**
   * Begins to serve a tunnel. Ignores a request for a tunnel that is already open.
   * @param address - Address of the coordinator to dial.
   * @returns The refusal with its reason; undefined when the request is not refused.
   */
  accept(request: OpenTunnel, address: string): TunnelRefused | undefined {
    const { tunnelId } = request;
    // While the agent stops, the session is still open to send Goodbye.
    if (this.closed)
      return create(TunnelRefusedSchema, { tunnelId, reason: 'the agent is stopping' });
    if (this.openTunnels.has(tunnelId)) return undefined; // duplicate request
    const isRelay = request.target.case === 'relay';
    const limit = isRelay ? MAX_RELAYS : MAX_TUNNELS;
    const open = [...this.openTunnels.values()].filter((tunnel) => tunnel.isRelay === isRelay);
    if (open.length >= limit) {
      const kind = isRelay ? 'relayed connections' : 'tunnels';
      const reason = `the node already serves ${limit} ${kind}`;
      return create(TunnelRefusedSchema, { tunnelId, reason });
    }
    const controller = new AbortController();
    this.openTunnels.set(tunnelId, { controller, isRelay });
    const served = this.serve(request, address, controller).finally(() => {
      this.openTunnels.delete(tunnelId);
      this.serving.delete(served);
    });
    this.serving.add(served);
    return undefined;
  }

  /** Ends all tunnels and the commands that run in them. */
  async close(): Promise<void> {
    this.closed = true;
    for (const { controller } of this.openTunnels.values()) controller.abort();
    await Promise.all(this.serving);
  }

  /** Dials the coordinator and serves the tunnel until one side ends it. Never rejects. */
  private async serve(
    request: OpenTunnel,
    address: string,
    controller: AbortController,
  ): Promise<void> {
    const { transport, clock, log } = this.options;
    const dialTimeoutMs =
      request.dialWithin === undefined ? DIAL_TIMEOUT_MS : durationMs(request.dialWithin);
    const dialTimer = clock.setTimer(dialTimeoutMs, () =>
      controller.abort(new CloudlessError('deadline', `not connected within ${dialTimeoutMs} ms`)),
    );
    const inbox = new TunnelInbox();
    let connection: CoordinatorConnection | undefined;
    let monitor: { end(): void } | undefined;
    const closeConnection = (): void => connection?.close();
    try {
      connection = await transport.connect(address, controller.signal);
      dialTimer.cancel();
      controller.signal.addEventListener('abort', closeConnection, { once: true });
      if (controller.signal.aborted) return;
      monitor = monitorConnection(connection, clock, () =>
        controller.abort(new CloudlessError('unavailable', 'no answer to a ping')),
      );
      // The tunnel ends when the coordinator ends this call.
      for await (const frame of connection.openTunnel(
        this.createFrames(request, inbox, controller.signal),
      ))
        inbox.put(frame);
    } catch (reason) {
      if (!controller.signal.aborted)
        log.debug('tunnel broke', { tunnelId: request.tunnelId, ...errorFields(reason) });
    } finally {
      dialTimer.cancel();
      monitor?.end();
      controller.abort();
      inbox.close();
      connection?.close();
    }
  }

  private async *createFrames(
    request: OpenTunnel,
    inbox: TunnelInbox,
    signal: AbortSignal,
  ): AsyncGenerator<TunnelFrame> {
    yield createFrame({ case: 'tunnelId', value: request.tunnelId });
    yield* mergeByArrival([this.createResults(request, inbox, signal), createWindowFrames(inbox)]);
  }

  /** Yields the frames of the requested call, then the end or the error. */
  private async *createResults(
    request: OpenTunnel,
    inbox: TunnelInbox,
    signal: AbortSignal,
  ): AsyncGenerator<TunnelFrame> {
    try {
      yield* this.createTargetResults(request, inbox, signal);
      if (!signal.aborted) yield createFrame({ case: 'end', value: create(TunnelEndSchema) });
    } catch (reason) {
      if (!signal.aborted)
        yield createFrame({
          case: 'error',
          value: create(TunnelErrorSchema, this.toError(reason)),
        });
    } finally {
      inbox.close();
    }
  }

  /** Makes the requested call and yields its results. */
  private async *createTargetResults(
    request: OpenTunnel,
    inbox: TunnelInbox,
    signal: AbortSignal,
  ): AsyncGenerator<TunnelFrame> {
    const { service } = this.options;
    const { target } = request;
    switch (target.case) {
      case 'logs':
        for await (const value of service.streamLogs(target.value, signal))
          yield createFrame({ case: 'log', value });
        return;
      case 'exec':
        yield* toExecFrames(await service.execCommand(target.value, signal), request.execInPieces);
        return;
      case 'status':
        yield createFrame({
          case: 'status',
          value: await service.getContainerStatus(target.value),
        });
        return;
      case 'stats':
        yield createFrame({ case: 'stats', value: await service.getContainerStats(target.value) });
        return;
      case 'statsList':
        yield createFrame({
          case: 'statsList',
          value: await service.listContainerStats(target.value),
        });
        return;
      case 'execStream':
        for await (const value of service.runExec(target.value, readExecInput(inbox), signal))
          yield createFrame({ case: 'execOutput', value });
        return;
      case 'portForward':
        for await (const value of service.forward(target.value, readForwardInput(inbox), signal))
          yield createFrame({ case: 'forwardOutput', value });
        return;
      case 'logChannel':
        yield* this.serveLogChannel(inbox, signal);
        return;
      case 'relay':
        yield* this.serveRelay(target.value.fromNodeId, inbox, signal);
        return;
      default:
        throw new CloudlessError(
          'unimplemented',
          'this agent version does not support this kind of tunnel',
        );
    }
  }

  /** Serves logs that the coordinator opens and closes, until the tunnel ends. */
  private async *serveLogChannel(
    inbox: TunnelInbox,
    signal: AbortSignal,
  ): AsyncGenerator<TunnelFrame> {
    const { service } = this.options;
    const channel = new LogChannel({
      streamLogs: (request, stop) => service.streamLogs(request, stop),
      toError: (reason) => this.toError(reason),
    });
    const end = (): void => channel.end();
    signal.addEventListener('abort', end, { once: true });
    const failures: unknown[] = [];
    const reading = readChannel(inbox, channel).catch((reason: unknown) => failures.push(reason));
    void reading.then(end);
    try {
      if (signal.aborted) return;
      for await (const frames of channel.readFrames())
        yield createFrame({
          case: 'logChannel',
          value: create(LogChannelFramesSchema, { frames: [...frames] }),
        });
      if (failures.length > 0) throw failures[0];
    } finally {
      signal.removeEventListener('abort', end);
      end();
    }
  }

  /** Carries the bytes of another network proxy to the network proxy of this node and back. */
  private async *serveRelay(
    fromNodeId: string,
    inbox: TunnelInbox,
    signal: AbortSignal,
  ): AsyncGenerator<TunnelFrame> {
    const { network, nodeId } = this.options;
    if (network === undefined)
      throw new CloudlessError('precondition', `node ${nodeId} has no network proxy`);
    const stream = await network.openRelay(fromNodeId);
    const close = (): void => stream.destroy();
    signal.addEventListener('abort', close, { once: true });
    try {
      if (signal.aborted) return;
      for await (const value of relayStream(stream, readForwardInput(inbox), signal))
        yield createFrame({ case: 'forwardOutput', value });
    } finally {
      signal.removeEventListener('abort', close);
      close();
    }
  }

  /** Returns the error for the coordinator. Internal errors are logged and not disclosed. */
  private toError(reason: unknown): TunnelError {
    const { log, nodeId } = this.options;
    if (errorKindOf(reason) === 'internal') log.error('tunnel failed', errorFields(reason));
    const error = toTunnelError(reason);
    // A limit, or a runtime that does not answer, concerns this node, which callers that name a
    // workload do not know.
    const isOfNode = ['exhausted', 'unavailable'].includes(errorKindOf(reason));
    if (isOfNode && !error.message.includes(nodeId))
      error.message = `node ${nodeId}: ${error.message}`;
    return error;
  }
}

function createFrame(frame: TunnelFrame['frame']): TunnelFrame {
  return create(TunnelFrameSchema, { frame });
}

/**
 * Splits a command result for coordinators that join pieces. Earlier versions expect the whole
 * result in one frame.
 */
function* toExecFrames(result: ExecCommandResponse, inPieces: boolean): Generator<TunnelFrame> {
  const pieces = inPieces ? splitExecResult(result) : [result];
  for (const [index, value] of pieces.entries()) {
    yield createFrame({ case: index < pieces.length - 1 ? 'execPiece' : 'exec', value });
  }
}

async function* createWindowFrames(inbox: TunnelInbox): AsyncGenerator<TunnelFrame> {
  for await (const bytes of inbox.grants())
    yield createFrame({ case: 'window', value: BigInt(bytes) });
}

async function readChannel(inbox: TunnelInbox, channel: LogChannel): Promise<void> {
  for await (const { frame } of inbox.read()) {
    if (frame.case === 'logChannel')
      for (const each of frame.value.frames) channel.handleFrame(each);
  }
}

async function* readExecInput(inbox: TunnelInbox): AsyncGenerator<ExecRequest> {
  for await (const { frame } of inbox.read()) if (frame.case === 'execInput') yield frame.value;
}

async function* readForwardInput(inbox: TunnelInbox): AsyncGenerator<PortForwardRequest> {
  for await (const { frame } of inbox.read()) if (frame.case === 'forwardInput') yield frame.value;
}

/**
 * Pings a connection until `end` is called. Calls `onLost` when a ping is not answered before the
 * next ping is due.
 */
function monitorConnection(
  connection: CoordinatorConnection,
  clock: Clock,
  onLost: () => void,
): { end(): void } {
  let answered = true;
  let timer: Timer;
  const ping = (): void => {
    if (!answered) return onLost();
    answered = false;
    connection.ping().then(
      () => (answered = true),
      () => undefined, // the Tunnel call fails as well
    );
    timer = clock.setTimer(PING_MS, ping);
  };
  timer = clock.setTimer(PING_MS, ping);
  return { end: () => timer.cancel() };
}
