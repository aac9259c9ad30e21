import { Code, ConnectError } from '@connectrpc/connect';
import type { MessageInitShape } from '@bufbuild/protobuf';
import {
  PlanWarning_Kind as Kind,
  WorkloadPlan_Action as Action,
  readErrorDetails,
} from '@cloudless/api';
import type { Plan, PlanWarning, PlannedChangeSchema } from '@cloudless/api';
import { formatWorkloadName } from '../../names.js';
import type { CliSession } from '../../call/cli-session.js';
import { isTransient } from '../../call/call-failure.js';
import { requireFreshManifests, type DatedChange } from '../objects/check-generation.js';

/** A change of a plan, as CreatePlan accepts it. */
export type ChangeInit = MessageInitShape<typeof PlannedChangeSchema> & {
  /**
   * Generation in the manifest of the workload, see {@link requireFreshManifests}. The coordinator
   * does not see this field, because a stale manifest that changes nothing is no error.
   */
  readonly manifestGeneration?: bigint;
};

/** Limit of the API for the changes of one plan. */
export const MAX_CHANGES = 16;

/**
 * Creates a plan.
 * @param validateOnly - True: nothing is stored.
 * @throws {@link ConnectError} with the code of the coordinator. The message of a refused change
 *   names its workload or node, instead of the index of the change in the request.
 *   {@link CliFailure} with exit code 4 for manifests that would overwrite newer changes.
 */
export async function createPlan(
  session: CliSession,
  changes: readonly ChangeInit[],
  validateOnly: boolean,
): Promise<Plan> {
  try {
    const plan = await session.client.createPlan(
      { changes: [...changes], validateOnly },
      session.getCallOptions(),
    );
    requireFreshManifests(changes.flatMap((change) => findDatedChange(change, plan)));
    return plan;
  } catch (reason) {
    if (!(reason instanceof ConnectError) || reason.code !== Code.InvalidArgument) throw reason;
    const message = reason.rawMessage.replaceAll(
      /changes\[(\d+)\]\.\w+\.?/g,
      (place, index) => describeSubject(changes[Number(index)]) ?? place,
    );
    const refusal = new ConnectError(message, reason.code);
    refusal.details = reason.details;
    throw refusal;
  }
}

/** Returns the change of a manifest with a generation, when the change has an effect. */
function findDatedChange(
  { change, manifestGeneration: generation }: ChangeInit,
  plan: Plan,
): readonly DatedChange[] {
  if (generation === undefined || change?.case !== 'apply') return [];
  const { namespace = '', name = '' } = change.value;
  return plan.workloads
    .filter((each) => each.namespace === namespace && each.name === name)
    .filter(({ action }) => action !== Action.NOTHING)
    .map(({ generation: current }) => ({
      ...{ subject: formatWorkloadName({ namespace, name }), generation, current },
      fetchCommand: `cloudlessctl get workloads ${namespace}/${name} -o yaml`,
    }));
}

/**
 * Predicts the effect of changes without storing a plan. More changes than one plan may contain are
 * predicted in groups, each from the present state.
 * @throws {@link ConnectError}, as {@link createPlan}.
 */
export async function predictChanges(
  session: CliSession,
  changes: readonly ChangeInit[],
): Promise<readonly Plan[]> {
  const plans: Plan[] = [];
  for (const group of groupChanges(changes)) plans.push(await createPlan(session, group, true));
  return plans;
}

/** Splits changes into groups, each small enough for one plan. */
export function groupChanges(changes: readonly ChangeInit[]): readonly (readonly ChangeInit[])[] {
  const groups: (readonly ChangeInit[])[] = [];
  for (let start = 0; start < changes.length; start += MAX_CHANGES)
    groups.push(changes.slice(start, start + MAX_CHANGES));
  return groups;
}

/** A change that the coordinator refuses. */
export interface Refusal {
  /** The workload or node of the change: `workload default/web`. */
  readonly subject: string;
  readonly reason: ConnectError;
}

/**
 * Predicts each change for itself: after the prediction of all changes has failed, this tells which
 * of them the coordinator refuses.
 * @throws A connection error, unchanged.
 */
export async function predictEach(
  session: CliSession,
  changes: readonly ChangeInit[],
): Promise<{ readonly plans: readonly Plan[]; readonly refusals: readonly Refusal[] }> {
  const plans: Plan[] = [];
  const refusals: Refusal[] = [];
  for (const change of changes) {
    try {
      plans.push(await createPlan(session, [change], true));
    } catch (reason) {
      if (!(reason instanceof ConnectError) || isTransient(reason)) throw reason;
      refusals.push({ subject: (describeSubject(change) ?? '').replace(/: $/, ''), reason });
    }
  }
  return { plans, refusals };
}

/**
 * Returns an error that lists refusals, with the code of the first.
 * @param refusals - At least one.
 */
export function listRefusals(refusals: readonly Refusal[]): ConnectError {
  // A message about an invalid field already names the workload.
  const lines = refusals.map(({ subject, reason: { rawMessage } }) =>
    rawMessage.startsWith(subject) ? rawMessage : `${subject}: ${rawMessage}`,
  );
  const [first] = refusals;
  const message = ['nothing was applied:', ...lines].join('\n');
  const refusal = new ConnectError(message, first?.reason.code);
  refusal.details = first?.reason.details ?? [];
  return refusal;
}

/**
 * Predicts changes before the configs of the same command exist.
 * @returns The predictions, and the workloads that wait for a config or a version of a config.
 * @throws {@link ConnectError} that lists the changes that the coordinator refuses for any other
 *   reason.
 */
export async function predictBeforeConfigs(
  session: CliSession,
  changes: readonly ChangeInit[],
): Promise<{ readonly plans: readonly Plan[]; readonly waiting: readonly string[] }> {
  try {
    return { plans: await predictChanges(session, changes), waiting: [] };
  } catch (reason) {
    if (!(reason instanceof ConnectError) || isTransient(reason)) throw reason;
    const { plans, refusals } = await predictEach(session, changes);
    const [waiting, others] = [true, false].map((isWaiting) =>
      refusals.filter(({ reason: each }) => isMissingConfig(each) === isWaiting),
    );
    if (others !== undefined && others.length > 0) throw listRefusals(others);
    return { plans, waiting: (waiting ?? []).map(({ subject }) => subject) };
  }
}

function isMissingConfig(reason: ConnectError): boolean {
  return (
    readErrorDetails(reason).reason === 'MISSING_REFERENCE' &&
    reason.rawMessage.includes('spec.configs[')
  );
}

/** Returns the prefix `workload <name>: ` or `node <id>: ` of a message about a change. */
function describeSubject(planned: ChangeInit | undefined): string | undefined {
  const value = planned?.change?.value;
  if (value === undefined) return undefined;
  if ('nodeId' in value) return `node ${value.nodeId ?? ''}: `;
  if (!('name' in value)) return undefined;
  return `${formatWorkloadName({ namespace: value.namespace ?? '', name: value.name ?? '' })}: `;
}

/**
 * Effect of a warning on the command: `ask`: the change needs a confirmation. `show`: the warning
 * is printed and the change is made. `ignore`: the warning describes what the user asked for.
 */
type Weight = 'ask' | 'show' | 'ignore';

/**
 * A change that takes the place of another rollout is how a failing rollout is mended, and a large
 * rollout may need more steps than a prediction has, so neither stops a change. A deletion ends
 * replicas on purpose, a priority above 100 is chosen to preempt, policies with the action AUDIT
 * refuse nothing, and policies are overridden by a flag of the command. A `min_available` that is
 * lowered to the number of replicas stops nothing beyond what the user asked for.
 */
const WEIGHTS: Readonly<Record<Kind, Weight>> = {
  [Kind.UNSPECIFIED]: 'ask',
  [Kind.NO_NODE_FITS]: 'ask',
  [Kind.BELOW_MIN_AVAILABLE]: 'ask',
  [Kind.NODE_HAS_REPLICAS]: 'ask',
  [Kind.SUPERSEDES_ROLLOUT]: 'show',
  [Kind.DOES_NOT_COMPLETE]: 'show',
  [Kind.NOT_PREDICTED]: 'show',
  [Kind.PREEMPTS]: 'show',
  [Kind.POLICY_AUDIT]: 'show',
  [Kind.POLICY_OVERRIDDEN]: 'show',
  [Kind.MIN_AVAILABLE_LOWERED]: 'show',
  [Kind.STOPS_REPLICAS]: 'ignore',
};

/** The warnings of predictions as sentences, each with its workload or node. */
export interface PredictedWarnings {
  /** The warnings that need a confirmation. */
  readonly asked: readonly string[];
  /** The warnings that are only shown. */
  readonly shown: readonly string[];
  /** True when one of `asked` says that no node fits a replica. */
  readonly lacksCapacity: boolean;
}

/** The warnings that `--force` accepts: a forced drain also stops replicas that fit nowhere else. */
const ACCEPTED_BY_FORCE: ReadonlySet<Kind> = new Set([
  Kind.NO_NODE_FITS,
  Kind.BELOW_MIN_AVAILABLE,
  Kind.NODE_HAS_REPLICAS,
]);

/**
 * Returns the warnings of predictions.
 * @param isForced - True: warnings about what `--force` does on purpose are only shown.
 */
export function collectWarnings(plans: readonly Plan[], isForced = false): PredictedWarnings {
  const asked: string[] = [];
  const shown: string[] = [];
  let lacksCapacity = false;
  const add = (subject: string, { kind, message, suggestion }: PlanWarning): void => {
    const weight = isForced && ACCEPTED_BY_FORCE.has(kind) ? 'show' : (WEIGHTS[kind] ?? 'ask');
    const hint = suggestion === '' ? '' : `; smallest change: ${suggestion}`;
    if (weight === 'ask') asked.push(`${subject}: ${message}${hint}`);
    if (weight === 'show') shown.push(`${subject}: ${message}`);
    lacksCapacity ||= weight === 'ask' && kind === Kind.NO_NODE_FITS;
  };
  for (const { changes, workloads, nodes } of plans) {
    // To undo a rollout is to take its place.
    const isUndo = changes.every(({ change }) => change.case === 'undo');
    for (const workload of workloads)
      for (const warning of workload.warningDetails)
        if (!isUndo || warning.kind !== Kind.SUPERSEDES_ROLLOUT)
          add(formatWorkloadName(workload), warning);
    for (const { nodeId, warnings } of nodes)
      for (const warning of warnings) add(`node ${nodeId}`, warning);
  }
  return { asked, shown, lacksCapacity };
}
