/**
 * Returns the command of a session with PostgreSQL, which sends a query every 100 ms until a file
 * exists. Each answer is `<number> <process id>`, for {@link findSessionFault}.
 */
export function formatSession(address: string, role: string, stopFile: string): string {
  const query = 'select $n, pg_backend_pid();';
  const loop = `n=0; while [ ! -e ${stopFile} ]; do n=$((n+1)); echo "${query}"; sleep 0.1; done`;
  return `(${loop}) | psql -h ${address} -U ${role} -AtX -F " " -v ON_ERROR_STOP=1 postgres`;
}

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
