import type { Problems } from './problems.js';

/** `NoSchedule` and `NoExecute` exclude nodes, `PreferNoSchedule` lowers the score. */
export type TaintEffect = 'NoSchedule' | 'PreferNoSchedule' | 'NoExecute';

/** A mark of a node that repels replicas without a matching toleration, as in Kubernetes. */
export interface Taint {
  readonly key: string;
  /** Absent means the empty value. */
  readonly value?: string;
  readonly effect: TaintEffect;
}

/** A taint pattern that a workload accepts, as in Kubernetes. */
export interface Toleration {
  /** Absent or empty: `Exists` matches every key; `Equal` is rejected. */
  readonly key?: string;
  /** `Equal` compares the value, `Exists` accepts any value. */
  readonly operator: 'Equal' | 'Exists';
  /** Only for `Equal`; absent means the empty value. */
  readonly value?: string;
  /** Absent or empty: matches every effect. */
  readonly effect?: TaintEffect | '';
}

/** Returns true when one of `tolerations` accepts the taint. */
export function isTolerated(taint: Taint, tolerations: readonly Toleration[]): boolean {
  return tolerations.some(({ key = '', operator, value = '', effect = '' }) => {
    if (effect !== '' && effect !== taint.effect) return false;
    if (operator === 'Exists') return key === '' || key === taint.key;
    return key === taint.key && value === (taint.value ?? '');
  });
}

/** Formats a taint as operators write it: `dedicated=gpu:NoSchedule`, `spot:NoExecute`. */
export function describeTaint({ key, value = '', effect }: Taint): string {
  return `${key}${value === '' ? '' : `=${value}`}:${effect}`;
}

export function checkTaints(problems: Problems, path: string, taints: readonly Taint[]): void {
  taints.forEach(({ key, effect }, index) => {
    problems.requireNotEmpty(`${path}[${index}].key`, key);
    problems.requireOneOf(`${path}[${index}].effect`, effect, [
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
    problems.requireOneOf(`${field}.operator`, operator, ['Equal', 'Exists']);
    if (effect !== '')
      problems.requireOneOf(`${field}.effect`, effect, [
        'NoSchedule',
        'PreferNoSchedule',
        'NoExecute',
      ]);
    if (operator === 'Equal' && key === '')
      problems.add(`${field}.key`, 'an empty key needs operator Exists');
    if (operator === 'Exists' && value !== '')
      problems.add(`${field}.value`, 'Exists takes no value');
  });
}
