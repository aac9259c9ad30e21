/** The fields of `Fields`, each absent instead of `undefined`. */
export type DefinedFields<Fields extends object> = {
  -readonly [Name in keyof Fields]?: Exclude<Fields[Name], undefined>;
};

/**
 * Leaves out the fields whose value is `undefined`. With `exactOptionalPropertyTypes` an optional
 * field may be absent but not `undefined`, so an object literal spreads the result of this
 * function.
 * @param fields - Not changed. `null`, `0`, `''` and `false` are values and stay.
 * @returns A new object with the other fields, in the same order.
 * @example
 * const request = { image, ...definedFields({ command, workingDirectory }) };
 */
export function definedFields<Fields extends object>(fields: Fields): DefinedFields<Fields> {
  const defined: DefinedFields<Fields> = {};
  for (const name of Object.keys(fields) as (keyof Fields)[]) {
    const value = fields[name];
    if (value !== undefined) defined[name] = value as Exclude<Fields[typeof name], undefined>;
  }
  return defined;
}
