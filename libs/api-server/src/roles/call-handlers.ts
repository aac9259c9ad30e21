import type { DescMethod, DescService } from '@bufbuild/protobuf';
import type { HandlerContext } from '@connectrpc/connect';

/**
 * Handles one call.
 * @param request - The message, or the stream of messages, of the client.
 * @returns A message or its promise, or a stream of messages.
 */
export type CallHandler = (request: unknown, context: HandlerContext) => unknown;

/** The handlers of one role, by RPC. */
export type CallHandlers = ReadonlyMap<DescMethod, CallHandler>;

/** Returns the handlers in the implementations of services, of which some may be incomplete. */
export function createCallHandlers(
  ...implementations: readonly (readonly [DescService, object])[]
): CallHandlers {
  const handlers = new Map<DescMethod, CallHandler>();
  for (const [service, implementation] of implementations) {
    const byName = implementation as Readonly<Record<string, CallHandler | undefined>>;
    for (const method of service.methods) {
      const handler = byName[method.localName];
      if (handler !== undefined) handlers.set(method, handler);
    }
  }
  return handlers;
}
