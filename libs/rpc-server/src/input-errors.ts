import type { UniversalHandler } from '@connectrpc/connect/protocol';
export function withInputErrors(handler: UniversalHandler): UniversalHandler {
  return handler;
}
