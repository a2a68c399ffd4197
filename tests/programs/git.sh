# Git: a history is cloned, goes on in several worktrees at once while it is collected, is merged and pushed.

readonly WORKTREES=(1 2 3)

run_git() {
  from_apt git git
  open_pool
  local home=$mounted/git origin=$mounted/git/origin clone=$mounted/git/clone number past added
  past=$(dose 1000 20000) added=$(dose 25 1000)
  export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0
  export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
  mkdir "$home"
  git init -q --bare -b main "$origin"
  git_history "$past" | git -C "$origin" fast-import --quiet
  # Over a pipe, as from another machine: what arrives is packed and indexed anew.
  git clone -q "file://$origin" "$clone"
  git -C "$clone" config gc.auto 0
  same 'git: the clone' "$(git -C "$origin" rev-list main)" "$(git -C "$clone" rev-list main)"

  for number in "${WORKTREES[@]}"; do
    git -C "$clone" worktree add -q -b "side-$number" "$home/tree-$number"
  done
  git_work "$clone" "$home" "$added"
  for number in "${WORKTREES[@]}"; do
    same "git: commits of worktree $number" "$added" "$(git -C "$clone" rev-list --count "main..side-$number")"
  done
  git -C "$clone" merge -q -m 'all of them' "${WORKTREES[@]/#/side-}" >"$LOGS/git-merge.log"
  for number in "${WORKTREES[@]}"; do
    same "git: the file of worktree $number" "$(seq "$added")" "$(cat "$clone/added-$number")"
    git -C "$clone" worktree remove "$home/tree-$number"
  done
  git -C "$clone" checkout -q HEAD~20
  git -C "$clone" checkout -q main
  git -C "$clone" gc -q --aggressive --prune=now
  git -C "$clone" push -q origin main
  same 'git: what was pushed' "$(git -C "$clone" rev-list main)" "$(git -C "$origin" rev-list main)"
  git_is_whole "$origin" "$clone"
  same 'git status' '' "$(git -C "$clone" status --porcelain)"

  reopen_pool
  # Not refreshed: each file has the inode number, size and times that it had.
  same 'git: files that seem changed after a remount' '' "$(git -C "$clone" diff-files --name-only)"
  git_is_whole "$origin" "$clone"
  echo "git: $(git -C "$clone" rev-list --count main) commits"
  close_pool
}

# A history of so many commits, as git imports it.
git_history() {
  awk -v commits="$1" 'BEGIN {
    for (n = 1; n <= commits; n++) {
      printf "commit refs/heads/main\ncommitter a <a@b> %d +0000\ndata <<END\nnumber %d\nEND\n", 1700000000 + n, n
      printf "M 100644 inline folder-%d/file-%d\ndata <<END\n", n % 7, n % 150
      for (line = 0; line < n % 200; line++) printf "line %d of file %d, since %d\n", line, n % 150, n
      print "END"
    }
  }'
}

# Commits in all worktrees at once; meanwhile the repository is packed and swept.
git_work() {
  local clone=$1 home=$2 added=$3 number lane lanes=()
  for number in "${WORKTREES[@]}"; do
    git_commits "$home/tree-$number" "added-$number" "$added" &
    lanes+=($!)
  done
  while kill -0 "${lanes[@]}" 2>/dev/null; do
    # It names references that changed meanwhile, and leaves them alone.
    git -C "$clone" gc -q 2>"$LOGS/git-gc.log" || finding "git gc beside commits: $(cat "$LOGS/git-gc.log")"
  done
  for lane in "${lanes[@]}"; do
    wait "$lane" || finding 'git: commits in a worktree'
  done
}

git_commits() {
  local line
  for line in $(seq "$3"); do
    echo "$line" >>"$1/$2"
    beside_collecting git -C "$1" add "$2"
    beside_collecting git -C "$1" commit -q -m "$2 $line"
  done
}

# Runs git, once more where collecting took away the folder for loose objects that git had just made. Git tries that
# only once, so on any file system it fails now and then: on a tmpfs 9 of 17,742 commits did.
beside_collecting() {
  local _ log
  for _ in 1 2 3; do
    log=$("$@" 2>&1) && return
    [[ $log == *'unable to create temporary file: No such file or directory'* ]] || break
  done
  echo "$log" >&2
  return 1
}

git_is_whole() {
  local repository
  for repository in "$@"; do
    git -C "$repository" fsck --full --strict --no-dangling --no-progress >"$LOGS/fsck.log" 2>&1 && [ ! -s "$LOGS/fsck.log" ] ||
      finding "git fsck of $repository: $(cat "$LOGS/fsck.log")"
  done
}
