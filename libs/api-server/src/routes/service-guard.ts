import type { DescMethod, DescService } from '@bufbuild/protobuf';
import type { HandlerContext, ServiceImpl } from '@connectrpc/connect';
import { RENEW_CERTIFICATE_HEADER } from '@cloudless/api';
import type { CallAccess } from '../access/call-access.js';

type Handler = (request: unknown, context: HandlerContext) => unknown;

/**
 * Makes every handler of a service begin with the check of the access table, also when the server
 * in front of the handlers has none. A response to a user with a certificate of an older generation
 * has the header {@link RENEW_CERTIFICATE_HEADER}.
 * @param waitForView - Waits until the view is as new as a request asks for. Default: that of
 *   `access`.
 */
export function guardService<Service extends DescService>(
  access: CallAccess,
  service: Service,
  implementation: ServiceImpl<Service>,
  waitForView: CallAccess['waitForRequestedRevision'] = (request, signal) =>
    access.waitForRequestedRevision(request, signal),
): ServiceImpl<Service> {
  const handlers = implementation as Readonly<Record<string, Handler>>;
  const guard =
    (method: DescMethod): Handler =>
    (request, context) => {
      const caller = access.getCaller(context);
      access.requireCall(caller, method);
      if (access.hasOldCertificate(caller))
        context.responseHeader.set(RENEW_CERTIFICATE_HEADER, 'true');
      const handler = handlers[method.localName];
      const waiting = waitForView(request, context.signal);
      return waiting === undefined
        ? handler?.(request, context)
        : waiting.then(() => handler?.(request, context));
    };
  return Object.fromEntries(
    service.methods.map((method) => [method.localName, guard(method)]),
  ) as ServiceImpl<Service>;
}
