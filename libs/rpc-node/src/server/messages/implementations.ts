import type { Message } from '@bufbuild/protobuf';
import {
  createMethodImplSpec,
  type ConnectRouter,
  type HandlerContext,
  type MethodImplSpec,
} from '@connectrpc/connect';

/** An implementation of a stream in both directions. */
export type StreamImplementation = (
  messages: AsyncIterable<Message>,
  context: HandlerContext,
) => AsyncIterable<Message>;

/**
 * The unary calls and the streams in both directions that a router has: a handler of Connect
 * does not expose its implementation. Calls and streams with options of their own are left out.
 */
export class Implementations {
  private readonly streams = new Map<unknown, StreamImplementation>();
  private readonly unaryCalls = new Map<unknown, MethodImplSpec>();

  /** Returns a router that passes everything on to `router`. */
  record(router: ConnectRouter): ConnectRouter {
    const recording: ConnectRouter = {
      handlers: router.handlers,
      service: (service, implementation, options) => {
        for (const method of service.methods) {
          const implement = (implementation as Readonly<Record<string, unknown>>)[method.localName];
          if (typeof implement === 'function' && options === undefined)
            this.add(createMethodImplSpec(method, implement.bind(implementation) as never));
        }
        router.service(service, implementation, options);
        return recording;
      },
      rpc: (method, implementation, options) => {
        if (options === undefined) this.add(createMethodImplSpec(method, implementation));
        router.rpc(method, implementation, options);
        return recording;
      },
    };
    return recording;
  }

  findStream(method: unknown): StreamImplementation | undefined {
    return this.streams.get(method);
  }

  findUnary(method: unknown): MethodImplSpec | undefined {
    return this.unaryCalls.get(method);
  }

  private add(spec: MethodImplSpec): void {
    if (spec.kind === 'unary') this.unaryCalls.set(spec.method, spec);
    else if (spec.kind === 'bidi_streaming')
      this.streams.set(spec.method, spec.impl as unknown as StreamImplementation);
  }
}
