# Writes a file past the page cache, asynchronously and several blocks at once, while others read it through the cache:
#
#   perl aio.pl FILE ROUNDS BLOCKS    each block has 64 KiB; all must be there. Prints how many rounds the cache missed.
use strict;
use warnings;
use Fcntl qw(O_RDONLY O_RDWR);
use POSIX ();

# io_setup, io_submit, io_getevents; O_DIRECT.
my %numbers = (x86_64 => [206, 209, 208, 040000], aarch64 => [0, 2, 4, 0200000], riscv64 => [0, 2, 4, 040000]);
my $numbers = $numbers{ (POSIX::uname())[4] } or exit 95;
my ($path, $rounds, $blocks) = @ARGV;
my $size = 64 << 10;
sysopen(my $direct, $path, O_RDWR | $numbers->[3]) or exit $! + 0;
sysopen(my $cached, $path, O_RDONLY) or exit $! + 0;
my ($parent, @readers) = ($$);
# However this ends, no reader stays behind and keeps the output open.
END { kill 'KILL', @readers if $parent && $$ == $parent }
for (1 .. 2) {
    my $child = fork() // exit $! + 0;
    if (!$child) {
        sysopen(my $file, $path, O_RDONLY) or exit $! + 0;
        for (;;) { sysseek($file, 0, 0); sysread($file, my $text, $size * $blocks) }
    }
    push @readers, $child;
}
my $context = pack('Q', 0);
syscall($numbers->[0], $blocks + 0, $context) == 0 or exit $! + 0;
$context = unpack('Q', $context);
my $missed = 0;
for my $round (1 .. $rounds) {
    my $letter = chr(ord('a') + $round % 26);
    my $data = $letter x $size;
    my $address = unpack('Q', pack('P', $data));
    # IOCB_CMD_PWRITE: data, key, flags, what, priority, descriptor, buffer, bytes, place, and the rest.
    my @requests = map { pack('Q L L S s L Q Q q Q L L', $_, 0, 0, 1, 0, fileno($direct), $address, $size, $_ * $size, 0, 0, 0) } 0 .. $blocks - 1;
    my $list = pack('Q*', map { unpack('Q', pack('P', $_)) } @requests);
    my $taken = 0;
    while ($taken < $blocks) {
        my $more = syscall($numbers->[1], $context, $blocks - $taken, unpack('Q', pack('P', $list)) + 8 * $taken);
        exit 1 if $more <= 0;
        $taken += $more;
    }
    my $events = "\0" x (32 * $blocks);
    my $done = 0;
    while ($done < $blocks) {
        my $more = syscall($numbers->[2], $context, 1, $blocks - $done, $events, 0);
        exit 1 if $more <= 0;
        $done += $more;
    }
    sysseek($cached, 0, 0);
    my $seen = '';
    while (length($seen) < $size * $blocks) {
        sysread($cached, my $text, $size * $blocks - length($seen)) or exit 1;
        $seen .= $text;
    }
    $missed++ if $seen ne $letter x ($size * $blocks);
}
kill 'KILL', @readers;
waitpid($_, 0) for @readers;
print $missed;
