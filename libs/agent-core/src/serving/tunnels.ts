import { create } from '@bufbuild/protobuf';
import { durationMs } from '@bufbuild/protobuf/wkt';
import { CloudlessError, errorFields, errorKindOf, errorMessageOf, type Clock, type Log } from '@cloudless/base';
import {
  codeOfKind,
  TunnelErrorSchema,
  TunnelFrameSchema,
  TunnelRefusedSchema,
  type OpenTunnel,
  type TunnelFrame,
  type TunnelRefused,
} from '@cloudless/api';
import type { CoordinatorConnection, CoordinatorTransport } from '../session/coordinator-transport.js';
import type { ContainerService } from './container-service.js';

/** Tunnels of one node at a time: they bound the commands and log streams that callers can make it serve. */
export const MAX_TUNNELS = 32;
/** When the coordinator does not say how soon to dial. */
const DIAL_WITHIN_MS = 10_000;

/** Needs of {@link Tunnels}. */
export interface TunnelsOptions {
  readonly transport: CoordinatorTransport;
  readonly service: ContainerService;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Serves what a coordinator asks for by OpenTunnel. Each tunnel has a connection of its own, so that a reader that has stopped
 * reading holds up neither the session nor another tunnel.
 */
export class Tunnels {
  private readonly open = new Map<string, AbortController>();
  private readonly serving = new Set<Promise<void>>();

  constructor(private readonly options: TunnelsOptions) {}

  /** Tunnels in use. */
  get size(): number {
    return this.open.size;
  }

  /** Begins to serve a tunnel. @returns Why not, otherwise. */
  accept(request: OpenTunnel, address: string): TunnelRefused | undefined {
    const { tunnelId } = request;
    if (this.open.has(tunnelId)) return undefined; // asked twice
    if (this.open.size >= MAX_TUNNELS)
      return create(TunnelRefusedSchema, { tunnelId, reason: `${MAX_TUNNELS} tunnels are in use` });
    const controller = new AbortController();
    this.open.set(tunnelId, controller);
    const served = this.serve(request, address, controller).finally(() => {
      this.open.delete(tunnelId);
      this.serving.delete(served);
    });
    this.serving.add(served);
    return undefined;
  }

  /** Ends all of them, with what they run. */
  async close(): Promise<void> {
    for (const controller of this.open.values()) controller.abort();
    await Promise.all(this.serving);
  }

  private async serve(request: OpenTunnel, address: string, controller: AbortController): Promise<void> {
    const { transport, clock, log } = this.options;
    const withinMs = request.dialWithin === undefined ? DIAL_WITHIN_MS : durationMs(request.dialWithin);
    const late = clock.setTimer(withinMs, () =>
      controller.abort(new CloudlessError('deadline', `not connected within ${withinMs} ms`)),
    );
    let connection: CoordinatorConnection | undefined;
    const hangUp = (): void => connection?.close();
    try {
      connection = await transport.connect(address, controller.signal);
      late.cancel();
      controller.signal.addEventListener('abort', hangUp, { once: true });
      if (controller.signal.aborted) return;
      // The coordinator sends nothing; that it ends the call is what tells us to end.
      for await (const _frame of connection.openTunnel(this.frames(request, controller.signal))) continue;
    } catch (reason) {
      if (!controller.signal.aborted) log.debug('tunnel broke', { tunnelId: request.tunnelId, ...errorFields(reason) });
    } finally {
      late.cancel();
      controller.abort();
      connection?.close();
    }
  }

  private async *frames({ tunnelId, target }: OpenTunnel, signal: AbortSignal): AsyncGenerator<TunnelFrame> {
    const frame = (value: TunnelFrame['frame']): TunnelFrame => create(TunnelFrameSchema, { frame: value });
    const { service } = this.options;
    yield frame({ case: 'tunnelId', value: tunnelId });
    try {
      switch (target.case) {
        case 'logs':
          for await (const value of service.streamLogs(target.value, signal)) yield frame({ case: 'log', value });
          return;
        case 'exec':
          yield frame({ case: 'exec', value: await service.execCommand(target.value, signal) });
          return;
        case 'status':
          yield frame({ case: 'status', value: await service.getContainerStatus(target.value) });
          return;
        default:
          throw new CloudlessError('unimplemented', 'this agent does not know that kind of tunnel');
      }
    } catch (reason) {
      if (!signal.aborted) yield frame({ case: 'error', value: create(TunnelErrorSchema, this.toError(reason)) });
    }
  }

  private toError(reason: unknown): { readonly code: number; readonly message: string } {
    const kind = errorKindOf(reason);
    if (kind === 'internal') this.options.log.error('tunnel failed', errorFields(reason));
    return { code: codeOfKind(kind), message: kind === 'internal' ? 'internal error' : errorMessageOf(reason) };
  }
}
