import type { DescMessage, DescMethodUnary, MessageShape } from '@bufbuild/protobuf';
import type { HandlerContext } from '@connectrpc/connect';
import { resolveNamespace } from '@cloudless/api';
import type { CallAccess } from '../access/call-access.js';
import type { AuditSubject } from '../audit/audit-event.js';
import type { AuditEntry, AuditLog } from '../audit/audit-log.js';
import type { WorkloadName } from '../lookup.js';

type Unary<Request extends DescMessage, Response extends DescMessage> = (
  request: MessageShape<Request>,
  context: HandlerContext,
) => Promise<MessageShape<Response>> | MessageShape<Response>;
type Audited<Request extends DescMessage, Response extends DescMessage> = (
  request: MessageShape<Request>,
  entry: AuditEntry,
  context: HandlerContext,
) => Promise<MessageShape<Response>> | MessageShape<Response>;

/** Builds handlers that check the object of the call and write its audit record. */
export class CallRoutes {
  constructor(
    readonly access: CallAccess,
    readonly audit: AuditLog,
  ) {}

  /** A call that reads one workload. */
  readWorkload<Request extends DescMessage, Response extends DescMessage>(
    method: DescMethodUnary<Request, Response>,
    handler: Unary<Request, Response>,
  ): Unary<Request, Response> {
    return readWorkload(this.access, method, handler);
  }

  /** A call that changes one workload. */
  changeWorkload<Request extends DescMessage, Response extends DescMessage>(
    method: DescMethodUnary<Request, Response>,
    handler: Audited<Request, Response>,
  ): Unary<Request, Response> {
    return this.audit.wrapUnary(method, (request, entry, context) => {
      requireWorkloadRole(this.access, method, request, context);
      return handler(request, entry, context);
    });
  }

  /**
   * Any other call with an audit record.
   * @param toSubject - Returns the object of the call. Default: by the fields `namespace`, `name`,
   *   `nodeId` and `replicaId` of the request.
   */
  change<Request extends DescMessage, Response extends DescMessage>(
    method: DescMethodUnary<Request, Response>,
    handler: Audited<Request, Response>,
    toSubject?: (request: MessageShape<Request>) => AuditSubject,
  ): Unary<Request, Response> {
    return this.audit.wrapUnary(method, handler, toSubject);
  }
}

/** Returns the handler of a call that reads one workload, behind the check of its namespace. */
export function readWorkload<Request extends DescMessage, Response extends DescMessage>(
  access: CallAccess,
  method: DescMethodUnary<Request, Response>,
  handler: Unary<Request, Response>,
): Unary<Request, Response> {
  return (request, context) => {
    requireWorkloadRole(access, method, request, context);
    return handler(request, context);
  };
}

/** Checks the role in the namespace of the workload that the request names. */
export function requireWorkloadRole(
  access: CallAccess,
  method: Parameters<CallAccess['requireNamespace']>[1],
  request: object,
  context: HandlerContext,
): void {
  access.requireNamespace(
    access.getCaller(context),
    method,
    resolveNamespace(request as WorkloadName),
  );
}
