/** Largest allowed value of a figure per replica, such as `commits`. */
export interface Limit {
  readonly figure: string;
  readonly max: number;
}

/**
 * Parses limits such as `commits=0.2,orders=1.1`.
 * @throws Error naming the part that is not `figure=number`.
 */
export function parseLimits(text: string): readonly Limit[] {
  return text
    .split(',')
    .filter((part) => part !== '')
    .map((part) => {
      const [, figure, max] = /^(\w+)=([\d.]+)$/.exec(part) ?? [];
      if (figure === undefined || max === undefined)
        throw new Error(`--limits: "${part}" is not figure=number`);
      return { figure, max: Number(max) };
    });
}

/** Returns a sentence for each figure that is unknown or above its limit. */
export function findExceeded(
  figures: Readonly<Record<string, number>>,
  limits: readonly Limit[],
): readonly string[] {
  return limits.flatMap(({ figure, max }) => {
    const value = figures[figure];
    if (value === undefined) return [`there is no figure ${figure}`];
    return value <= max ? [] : [`${value} ${figure} for each replica, at most ${max} are allowed`];
  });
}
