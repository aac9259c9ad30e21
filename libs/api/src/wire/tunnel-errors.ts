import { create } from '@bufbuild/protobuf';
import {
  CloudlessError,
  ERROR_REASON_KINDS,
  errorKindOf,
  errorMessageOf,
  errorReasonOf,
  isErrorReason,
} from '@cloudless/base';
import { ErrorReason as ReasonEnum } from '../gen/cloudless/api/error_pb.js';
import { TunnelErrorSchema, type TunnelError } from '../gen/cloudless/api/session_pb.js';
import { toReasonEnum } from './error-details.js';
import { toCode, toErrorKind } from './errors.js';

/**
 * Converts any thrown value to the error that an agent sends through a tunnel. The message of an
 * internal error is not disclosed.
 */
export function toTunnelError(reason: unknown): TunnelError {
  const kind = errorKindOf(reason);
  return create(TunnelErrorSchema, {
    code: toCode(kind),
    message: kind === 'internal' ? 'internal error' : errorMessageOf(reason),
    reason: toReasonEnum(errorReasonOf(reason)),
  });
}

/**
 * Converts an error of a tunnel to an error of the same kind, with its reason when the reason is
 * known and belongs to the kind.
 */
export function fromTunnelError({ code, message, reason }: TunnelError): CloudlessError {
  const kind = toErrorKind(code);
  const name = ReasonEnum[reason] ?? '';
  const isOfKind = isErrorReason(name) && ERROR_REASON_KINDS[name] === kind;
  return new CloudlessError(isOfKind ? name : kind, message);
}
