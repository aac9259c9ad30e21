import {
  PolicyRule_Type as RuleType,
  PolicySpec_Action as Action,
  PolicyVerdict_Decision as Decision,
  type Policy,
  type PolicyVerdict,
  type PolicyViolation,
} from '@cloudless/api';
import { formatAge } from '../output/human.js';
import type { Style } from '../output/style.js';
import { formatTable } from '../output/table.js';
import { formatFields, formatSections } from './sections.js';

/** Formats policies as a table. */
export function formatPolicyTable(
  policies: readonly Policy[],
  nowMs: number,
  style: Style,
): string {
  return formatTable(
    [
      'NAME',
      'NAMESPACE',
      'ACTION',
      'PRIORITY',
      'ENABLED',
      { header: 'RULES', fit: 'wrap' as const },
      { header: 'AGE', dropOrder: 1 },
    ],
    policies.map(({ name, spec, createdAt }) => [
      name,
      spec?.namespace === '*' ? 'all' : (spec?.namespace ?? ''),
      formatAction(spec?.action),
      String(spec?.priority ?? 0),
      spec?.enabled === false ? { text: 'no', paint: style.yellow } : 'yes',
      (spec?.rules ?? []).map((rule) => rule.name || toWord(RuleType[rule.type])).join(', '),
      formatAge(createdAt, nowMs),
    ]),
    style,
  );
}

/** Formats the violations of workloads as a table with a row for each violation. */
export function formatViolationTable(verdicts: readonly PolicyVerdict[], style: Style): string {
  return formatTable(
    ['NAMESPACE', 'WORKLOAD', 'DECISION', ...VIOLATION_COLUMNS],
    verdicts.flatMap((verdict) =>
      [...verdict.violations, ...verdict.audit].map((violation) => [
        verdict.namespace,
        verdict.name,
        formatDecision(verdict, style),
        ...toRow(violation),
      ]),
    ),
    style,
  );
}

/** Formats the decision about a workload with all reasons. */
export function formatVerdict(verdict: PolicyVerdict, style: Style): string {
  const { violations, audit, totalViolations } = verdict;
  const shown = violations.length + audit.length;
  const rows = [...violations, ...audit].map(toRow);
  return formatSections(style, [
    [
      '',
      formatFields([
        ['Workload', `${verdict.namespace}/${verdict.name}`],
        ['Decision', formatDecision(verdict, style).text],
        ['Decided by', describeDecider(verdict)],
        ...(totalViolations > shown
          ? ([['Violations', `${totalViolations}, of which ${shown} are shown`]] as const)
          : []),
      ]),
    ],
    ['Violations', rows.length === 0 ? 'none\n' : formatTable(VIOLATION_COLUMNS, rows, style)],
  ]);
}

const VIOLATION_COLUMNS = [
  'POLICY',
  'RULE',
  'ACTION',
  { header: 'FIELD', fit: 'wrap' as const },
  { header: 'VALUE', fit: 'wrap' as const },
  { header: 'ALLOWED', fit: 'wrap' as const },
];

function toRow({ policy, rule, action, field, value, allowed }: PolicyViolation): string[] {
  return [policy, rule, formatAction(action), field, value, allowed];
}

function formatDecision({ decision }: PolicyVerdict, style: Style) {
  return decision === Decision.DENY
    ? { text: 'denied', paint: style.red }
    : { text: 'allowed', paint: style.green };
}

function describeDecider({ byDefault, policy }: PolicyVerdict): string {
  if (byDefault) return 'no policy selects the workload';
  return policy === '' ? 'several policies together' : `policy ${policy}`;
}

function formatAction(action: Action | undefined): string {
  return toWord(Action[action ?? Action.DENY]);
}

function toWord(name: string | undefined): string {
  return (name ?? '').toLowerCase().replaceAll('_', '-');
}
