import { Code, ConnectError } from '@connectrpc/connect';
import type { DescEnum } from '@bufbuild/protobuf';
import { Event_Category, Event_CategorySchema, Event_SeveritySchema } from '@cloudless/api';
import type { Event_Severity } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { createUsageFailure } from '../../call/failure.js';
import { describeExpectedEnum, findEnumName } from '../../flags/enum-words.js';
import { parseWorkloadName } from '../../names.js';
import { findWorkload } from '../workload/find-workload.js';
import { findNode } from '../node/find-node.js';
import { getListOption, getTextOption, hasFlag } from '../options.js';

/**
 * All categories except AUDIT. An audit record repeats the content of the other events of the same
 * change.
 */
export const NON_AUDIT_CATEGORIES: readonly Event_Category[] = [
  Event_Category.MEMBERSHIP,
  Event_Category.SCHEDULING,
  Event_Category.ROLLOUT,
  Event_Category.WORKLOAD,
  Event_Category.SECURITY,
  Event_Category.SYSTEM,
];

/** Selects events. A field that is empty selects every value. */
export interface EventFilter {
  readonly namespace: string;
  readonly workload: string;
  readonly nodeId: string;
  readonly categories: Event_Category[];
  readonly reasons: string[];
  readonly severities: Event_Severity[];
}

/**
 * Returns the filter of the options, except `--since`.
 * @throws {@link CliFailure} with exit code 2 for an unknown type or severity.
 */
export function readEventFilter(invocation: Invocation): EventFilter {
  const { settings } = invocation.session;
  const workload = getTextOption(invocation, 'workload');
  const nodeId = getTextOption(invocation, 'node');
  const workloadName =
    workload === undefined ? undefined : parseWorkloadName(workload, settings.namespace);
  const isScoped = settings.namespaceGiven && !hasFlag(invocation, 'allNamespaces');
  return {
    namespace: workloadName?.namespace ?? (isScoped ? settings.namespace : ''),
    workload: workloadName?.name ?? '',
    nodeId: nodeId ?? '',
    categories: readCategories(invocation),
    reasons: [...getListOption(invocation, 'reason')].flatMap((text) => text.split(',')),
    severities: readNumbers(invocation, 'severity', Event_SeveritySchema),
  };
}

function readCategories(invocation: Invocation): Event_Category[] {
  const types = readNumbers(invocation, 'type', Event_CategorySchema);
  if (hasFlag(invocation, 'audit')) {
    if (types.length > 0) throw createUsageFailure('give --audit or --type, not both');
    return [Event_Category.AUDIT];
  }
  return types.length > 0 ? types : [...NON_AUDIT_CATEGORIES];
}

/** Parses the values of a repeatable option as names of an enum, in any usual spelling. */
function readNumbers(invocation: Invocation, option: string, schema: DescEnum): number[] {
  return getListOption(invocation, option)
    .flatMap((text) => text.split(','))
    .map((text) => {
      const names = schema.values.map(({ name }) => name);
      const name = findEnumName(text, names);
      const found = schema.values.find((value) => value.name === name);
      if (found !== undefined) return found.number;
      throw createUsageFailure(`--${option}: ${describeExpectedEnum(text, names)}`);
    });
}

/**
 * Checks that the workload and the node of a filter exist, because without events a misspelled name
 * would look like a quiet one.
 * @throws {@link CliFailure} with exit code 3 when there is no such workload or node. A user who may
 *   not read nodes gets a notice instead.
 */
export async function requireSubjects(
  { session }: Invocation,
  { namespace, workload, nodeId }: EventFilter,
): Promise<void> {
  if (workload !== '') await findWorkload(session, { namespace, name: workload });
  if (nodeId === '') return;
  try {
    await findNode(session, nodeId);
  } catch (reason) {
    if (!(reason instanceof ConnectError) || reason.code !== Code.PermissionDenied) throw reason;
    await session.printNotice(
      `whether the node ${nodeId} exists is not known, because ${reason.rawMessage}`,
    );
  }
}
