/** Returns the changed labels; undefined without a difference. An empty value removes a label. */
export function changeLabels(
  before: Readonly<Record<string, string>>,
  changes: Readonly<Record<string, string>>,
): Record<string, string> | undefined {
  const after = { ...before };
  for (const [key, value] of Object.entries(changes)) {
    if (value === '') delete after[key];
    else after[key] = value;
  }
  const isSame =
    Object.keys(before).length === Object.keys(after).length &&
    Object.entries(after).every(([key, value]) => before[key] === value);
  return isSame ? undefined : after;
}
