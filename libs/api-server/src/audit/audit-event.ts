import { Event_Category as Category, Event_Severity as Severity } from '@cloudless/api';
import type { EventInit } from '@cloudless/cluster-state';

/** The objects that a call is about. A field is absent when the call has no such object. */
export interface AuditSubject {
  readonly namespace?: string;
  readonly workload?: string;
  readonly nodeId?: string;
  readonly replicaId?: string;
  /** An object of another kind, for the message: `user ada`. */
  readonly object?: string;
  /**
   * The words of a command. The audit record contains only the first word and the number of the
   * others, because arguments may contain secrets.
   */
  readonly command?: readonly string[];
  /** The secrets that the call is about, as `<namespace>/<name>`. */
  readonly secrets?: readonly string[];
  /**
   * Version of the values that the call returns, for each of `secrets`. The record of a refused call
   * has none.
   */
  readonly secretVersions?: readonly number[];
  /** Id of the access token in the request. */
  readonly accessTokenId?: string;
  /** Audience of the access token. */
  readonly audience?: string;
}

/** What an audit record says about a call, apart from its result. */
export interface AuditFacts {
  /** Full name of the method: `cloudless.api.CoordinatorService/CordonNode`. */
  readonly rpc: string;
  /** Address of the client; empty for calls within one process. */
  readonly address: string;
  readonly traceId: string;
  /** Name of the principal: `user/ada`. */
  readonly principal: string;
  /** Id of the credential of a user; empty for other principals. */
  readonly credentialId: string;
  readonly subject: AuditSubject;
  readonly requestId: string;
  /** The reason with which the caller requested to override policies. Default: no override. */
  readonly overrideReason?: string;
  /** Why the credentials were refused. Default: they were valid. */
  readonly cause?: string;
}

/**
 * Creates the event of an audit record.
 * @param facts - `result`: `ok`, `started`, `unchanged`, or the error code: `not_found`.
 */
export function createAuditEvent({
  rpc,
  address,
  traceId,
  principal,
  credentialId,
  requestId,
  subject: {
    command,
    object = '',
    secrets = [],
    secretVersions = [],
    accessTokenId = '',
    audience = '',
    ...subject
  },
  overrideReason = '',
  cause = '',
  result,
}: AuditFacts & { readonly result: string }): EventInit {
  const [program = '', ...args] = command ?? [];
  const isSuccess = result === 'ok' || result === 'started' || result === 'unchanged';
  const method = rpc.slice(rpc.indexOf('/') + 1);
  const from = address === '' ? '' : ` from ${address}`;
  const running =
    program === ''
      ? ''
      : `, running ${program} with ${args.length} ${args.length === 1 ? 'argument' : 'arguments'}`;
  const overriding =
    overrideReason === '' ? '' : `, overriding policies (${JSON.stringify(overrideReason)})`;
  const using = accessTokenId === '' ? '' : ` with access token ${accessTokenId}`;
  const because = cause === '' ? '' : ` (${cause})`;
  return {
    severity: isSuccess ? Severity.INFO : Severity.WARNING,
    category: Category.AUDIT,
    reason: method,
    message: `${principal}${from} called ${method}${object === '' ? describeSubject(subject) : ` on ${object}`}${running}${using}${overriding}: ${result}${because}`,
    ...subject,
    requestId,
    audit: {
      principal,
      address,
      rpc,
      result,
      program,
      argumentCount: args.length,
      traceId,
      credentialId,
      cause,
      overrideReason,
      secrets: [...secrets],
      secretVersions: isSuccess ? [...secretVersions] : [],
      accessTokenId,
      audience,
    },
  };
}

function describeSubject({
  namespace,
  workload,
  nodeId,
  replicaId,
}: Pick<AuditSubject, 'namespace' | 'workload' | 'nodeId' | 'replicaId'>): string {
  if (replicaId !== undefined && replicaId !== '') return ` on replica ${replicaId}`;
  if (workload !== undefined && workload !== '') return ` on ${namespace}/${workload}`;
  return nodeId === undefined || nodeId === '' ? '' : ` on node ${nodeId}`;
}
