import type { Problems } from './problems.js';

/** `NoSchedule` and `NoExecute` keep replicas away, `PreferNoSchedule` only costs score. */
export type TaintEffect = 'NoSchedule' | 'PreferNoSchedule' | 'NoExecute';

/** What a node repels replicas by, unless they tolerate it. */
export interface Taint {
  readonly key: string;
  /** Absent is the empty value. */
  readonly value?: string;
  readonly effect: TaintEffect;
}

/** Which taints a workload accepts. */
export interface Toleration {
  /** Absent or empty: with `Exists` every key; with `Equal` refused. */
  readonly key?: string;
  /** `Equal` compares the value, `Exists` accepts any. */
  readonly operator: 'Equal' | 'Exists';
  /** For `Equal` only; absent is the empty value. */
  readonly value?: string;
  /** Absent or empty: every effect. */
  readonly effect?: TaintEffect | '';
}

/** Whether one of `tolerations` accepts the taint. */
export function isTolerated(taint: Taint, tolerations: readonly Toleration[]): boolean {
  return tolerations.some(({ key = '', operator, value = '', effect = '' }) => {
    if (effect !== '' && effect !== taint.effect) return false;
    if (operator === 'Exists') return key === '' || key === taint.key;
    return key === taint.key && value === (taint.value ?? '');
  });
}

/** A taint as operators write it: `dedicated=gpu:NoSchedule`, `spot:NoExecute`. */
export function describeTaint({ key, value = '', effect }: Taint): string {
  return `${key}${value === '' ? '' : `=${value}`}:${effect}`;
}

export function checkTaints(problems: Problems, path: string, taints: readonly Taint[]): void {
  taints.forEach(({ key, effect }, index) => {
    problems.notEmpty(`${path}[${index}].key`, key);
    problems.oneOf(`${path}[${index}].effect`, effect, [
      'NoSchedule',
      'PreferNoSchedule',
      'NoExecute',
    ]);
  });
}

export function checkTolerations(
  problems: Problems,
  path: string,
  tolerations: readonly Toleration[],
): void {
  tolerations.forEach(({ key = '', operator, value = '', effect = '' }, index) => {
    const field = `${path}[${index}]`;
    problems.oneOf(`${field}.operator`, operator, ['Equal', 'Exists']);
    if (effect !== '')
      problems.oneOf(`${field}.effect`, effect, ['NoSchedule', 'PreferNoSchedule', 'NoExecute']);
    if (operator === 'Equal' && key === '')
      problems.note(`${field}.key`, 'an empty key needs operator Exists');
    if (operator === 'Exists' && value !== '')
      problems.note(`${field}.value`, 'Exists takes no value');
  });
}
