/**
 * Compares the answers of a session with 1, 2, 3, … from one server process.
 * @param lines - `<number> <process id>` for each query.
 * @returns The first fault; undefined when there is none.
 */
export function findSessionFault(lines: readonly string[]): string | undefined {
  const server = lines[0]?.split(' ')[1];
  if (server === undefined) return 'no query was answered';
  const index = lines.findIndex((line, at) => line !== `${at + 1} ${server}`);
  return index === -1
    ? undefined
    : `answer ${index + 1} is "${lines[index]}", expected "${index + 1} ${server}"`;
}
