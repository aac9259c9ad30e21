import type { DescMethod, DescService } from '@bufbuild/protobuf';
import type { HandlerContext, ServiceImpl } from '@connectrpc/connect';
import type { CallAccess } from '../access/call-access.js';

type Handler = (request: unknown, context: HandlerContext) => unknown;

/**
 * Makes every handler of a service begin with the check of the access table, also when the server
 * in front of the handlers has none.
 */
export function guardService<Service extends DescService>(
  access: CallAccess,
  service: Service,
  implementation: ServiceImpl<Service>,
): ServiceImpl<Service> {
  const handlers = implementation as Readonly<Record<string, Handler>>;
  const guard =
    (method: DescMethod): Handler =>
    (request, context) => {
      access.requireCall(access.getCaller(context), method);
      return handlers[method.localName]?.(request, context);
    };
  return Object.fromEntries(
    service.methods.map((method) => [method.localName, guard(method)]),
  ) as ServiceImpl<Service>;
}
